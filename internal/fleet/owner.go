package fleet

import "time"

// Owner is the Kubernetes resource that declares resources of the server. Only that resource changes them. The zero value
// means that there is none.
type Owner struct {
	Kind      string // GitOpsDeployment, ManagedEnvironment, …; Namespace for tenants
	Namespace string // "" for a Namespace
	Name      string
	UID       string
	// Generation is metadata.generation of the resource.
	Generation int64
	// Created is metadata.creationTimestamp of the resource, in seconds since 1970. Of two resources with the same name and
	// different UIDs, the one that was created later replaced the other.
	Created int64
}

// IsZero reports whether there is no owner.
func (o Owner) IsZero() bool { return o.UID == "" }

// Same reports whether two owners have the same name, and may differ in UID and generation.
func (o Owner) Same(other Owner) bool {
	return o.Kind == other.Kind && o.Namespace == other.Namespace && o.Name == other.Name
}

// String returns "Kind namespace/name".
func (o Owner) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// OwnedKind is the kind of a resource of the server that can have an Owner.
type OwnedKind string

// The kinds of resources that can have an owner.
const (
	OwnedTenant      OwnedKind = "tenant"
	OwnedAgent       OwnedKind = "agent"
	OwnedEnvironment OwnedKind = "environment"
	OwnedCredential  OwnedKind = "credential"
	OwnedDeployment  OwnedKind = "deployment"
	OwnedRun         OwnedKind = "run"
)

// Owned is a resource of the server with its owner.
type Owned struct {
	TenantID TenantID
	Kind     OwnedKind
	ID       string // of the resource
	Owner    Owner
	// MissingSince is when the owner was found to be missing although nobody had deleted it; otherwise zero. The
	// resource stays as it is: absence is never deletion.
	MissingSince time.Time
}
