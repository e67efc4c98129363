package control

import (
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// CreateTenant is the request for a new tenant.
type CreateTenant struct {
	Name  string
	Quota fleet.Quota
}

// UpdateTenant changes a tenant; nil fields do not change.
type UpdateTenant struct {
	Quota *fleet.Quota
}

// FleetView is the whole fleet in a few numbers.
type FleetView struct {
	fleet.Settings
	Agents, Connected, Deployments, Targets int
}

// CreateAPIToken is the request for a new token.
type CreateAPIToken struct {
	Name string
	Role fleet.Role // for a fleet token: fleet.RoleFleetAdmin, which is also the default
	// ExpiresIn is how long it is valid; 0 means until it is revoked.
	ExpiresIn time.Duration
}

// Login is a person whom an identity provider has authenticated.
type Login struct {
	Issuer, Subject string   // identify the provider and the person; never reused
	Name            string   // the name in memberships and in the audit log
	DisplayName     string   // for display only; may be ""
	Groups          []string // as named by the provider
	FleetAdmin      bool     // one of the groups makes them a fleet admin
	TTL             time.Duration
	// For the audit log.
	Request string // id of the request
	Address string // address of the person
}

// CreateEnvironment is the request for a new environment.
type CreateEnvironment struct {
	Name        string
	Agents      []string
	MatchLabels map[string]string
	// Push makes a push environment, which has neither Agents nor MatchLabels.
	Push *PushSpec
}

// PushSpec is the cluster of a push environment.
type PushSpec struct {
	APIURL string
	// Kubeconfig has the credential. It is never returned. In an update, "" keeps the credential.
	Kubeconfig string
	// Context is the name of a context of the kubeconfig; "" chooses the one for APIURL.
	Context          string
	Namespaces       []string // empty: the whole cluster. In an update, nil keeps them and ClusterResources.
	ClusterResources bool     // allowed although Namespaces is set
}

// UpdateEnvironment changes the agents of an environment; nil fields do not change.
type UpdateEnvironment struct {
	Agents      *[]string
	MatchLabels *map[string]string
	// Push replaces the cluster of a push environment. Its URL can change only while no deployment uses the environment.
	Push *PushSpec
}

// EnvironmentView is an environment for users.
type EnvironmentView struct {
	fleet.Environment
	// Agents are the names of the currently selected agents, sorted; Environment.Agents are the configured
	// names.
	Agents      []string
	Deployments int // of all tenants that deploy to it
	// Ready tells whether a push environment can be used, and why not; the zero value for others.
	Ready fleet.Condition
	// Instance is the name of the agent that serves a push environment.
	Instance string
}

// CreateGrant is the request for a grant to another tenant.
type CreateGrant struct {
	Environment string
	Grantee     string // name of the other tenant
	Limits      fleet.Limits
	// ServiceAccount is the account that agents impersonate for deployments that use the grant; "" keeps the
	// setting of the deployments.
	ServiceAccount string
}

// UpdateGrant replaces the terms of a grant.
type UpdateGrant struct {
	Limits         fleet.Limits
	ServiceAccount *string // nil does not change it
}
