package apiv1

import "time"

// Tenant is the wall. It owns everything below it.
type Tenant struct {
	ID         string      `json:"id"`
	Name       string      `json:"name"`
	Quota      Quota       `json:"quota"`
	Suspension *Suspension `json:"suspension,omitempty" doc:"Set while everything that it owns is suspended."`
	CreatedAt  time.Time   `json:"createdAt,omitzero"`
}

// Quota bounds what a tenant may own. Zero means without a bound.
type Quota struct {
	Agents       int `json:"agents,omitempty" minimum:"0"`
	Environments int `json:"environments,omitempty" minimum:"0"`
	Repositories int `json:"repositories,omitempty" minimum:"0"`
	Deployments  int `json:"deployments,omitempty" minimum:"0"`
	Targets      int `json:"targets,omitempty" minimum:"0"`
	Tokens       int `json:"tokens,omitempty" minimum:"0"`
}

// CreateTenant asks for a new tenant.
type CreateTenant struct {
	Name  string `json:"name" doc:"An RFC 1123 label, unique in the fleet."`
	Quota Quota  `json:"quota,omitzero"`
}

// UpdateTenant changes a tenant; what is absent stays as it is.
type UpdateTenant struct {
	Quota *Quota `json:"quota,omitempty" doc:"The whole quota from now on."`
}

// Suspension says that nothing new is sent until it is lifted. What runs goes on running.
type Suspension struct {
	At     time.Time `json:"at,omitzero"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Suspend asks for a suspension.
type Suspend struct {
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"For those who wonder why nothing moves."`
}

// Fleet is what is true of the whole fleet.
type Fleet struct {
	Epoch       int64       `json:"epoch" doc:"Rises when a backup is restored."`
	Suspension  *Suspension `json:"suspension,omitempty" doc:"Set while the whole fleet is frozen."`
	Agents      int         `json:"agents"`
	Connected   int         `json:"connected"`
	Deployments int         `json:"deployments"`
	Targets     int         `json:"targets"`
}

// FleetSettings is what can be set for the whole fleet.
type FleetSettings struct {
	Epoch      int64       `json:"epoch" doc:"Rises when a backup is restored."`
	Suspension *Suspension `json:"suspension,omitempty" doc:"Set while the whole fleet is frozen."`
}

// Member is a role of a person, or of everybody in a group of the identity provider, in a tenant.
type Member struct {
	Kind      string    `json:"kind" enum:"person,group"`
	Subject   string    `json:"subject" doc:"Name of the person or the group, as the identity provider gives it."`
	Role      string    `json:"role" enum:"viewer,deployer,admin"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
}

// PutMember gives a role.
type PutMember struct {
	Role string `json:"role" enum:"viewer,deployer,admin"`
}

// APIToken is a token for the API, without the token itself.
type APIToken struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Role      string    `json:"role" doc:"viewer, deployer or admin of its tenant; fleet-admin for one of the fleet."`
	Valid     bool      `json:"valid"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
	CreatedBy string    `json:"createdBy,omitempty"`
	ExpiresAt time.Time `json:"expiresAt,omitzero" doc:"Absent when it never does."`
	RevokedAt time.Time `json:"revokedAt,omitzero"`
}

// CreateAPIToken asks for a token.
type CreateAPIToken struct {
	Name      string `json:"name" doc:"Who or what uses it: it is in the audit log."`
	Role      string `json:"role" enum:"viewer,deployer,admin,fleet-admin" doc:"Never more than the caller has."`
	ExpiresIn string `json:"expiresIn,omitempty" doc:"How long it is valid, such as 12h or 90d; without end when absent."`
}

// NewAPIToken is an APIToken with the token, which is shown this once.
type NewAPIToken struct {
	APIToken
	Token string `json:"token"`
}

// Grant lets another tenant deploy to an environment, within limits.
type Grant struct {
	ID          string `json:"id"`
	Environment string `json:"environment" doc:"OWNER/NAME where it was received: what a deployment names."`
	Owner       string `json:"owner" doc:"Name of the tenant whose environment it is."`
	Grantee     string `json:"grantee" doc:"Name of the tenant that may deploy to it."`
	Direction   string `json:"direction" enum:"given,received"`
	Limits      Limits `json:"limits"`
	// ServiceAccount overrides what the deployments say.
	ServiceAccount string    `json:"serviceAccount,omitempty" doc:"NAMESPACE/NAME of the ServiceAccount that everything by the grant is applied as, whatever the deployments say."`
	CreatedAt      time.Time `json:"createdAt,omitzero"`
}

// Limits bounds what a deployment may touch. What is absent means everything.
type Limits struct {
	Namespaces []string `json:"namespaces,omitempty" nullable:"false" doc:"With any, cluster-scoped kinds are beyond the limit."`
	Kinds      []string `json:"kinds,omitempty" nullable:"false" doc:"Such as ConfigMap, Deployment.apps or *.example.com."`
}

// CreateGrant asks for a grant.
type CreateGrant struct {
	Environment string `json:"environment"`
	Grantee     string `json:"grantee" doc:"Name of the tenant that may deploy to it."`
	Limits      Limits `json:"limits,omitzero"`
	// ServiceAccount overrides what the deployments say.
	ServiceAccount string `json:"serviceAccount,omitempty" doc:"NAMESPACE/NAME of the ServiceAccount that everything by the grant is applied as, whatever the deployments say; theirs when absent."`
}

// UpdateGrant replaces the terms of a grant.
type UpdateGrant struct {
	Limits         Limits  `json:"limits"`
	ServiceAccount *string `json:"serviceAccount,omitempty" doc:"As in CreateGrant; absent leaves it as it is, empty leaves it to the deployments."`
}
