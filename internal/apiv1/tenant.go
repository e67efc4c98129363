package apiv1

import "time"

// Tenant is the unit of isolation. It owns everything below it.
type Tenant struct {
	ID         string      `json:"id"`
	Name       string      `json:"name"`
	Quota      Quota       `json:"quota"`
	Suspension *Suspension `json:"suspension,omitempty" doc:"Set while all deployments of the tenant are suspended."`
	CreatedAt  time.Time   `json:"createdAt,omitzero"`
}

// Quota limits what a tenant may own. Zero means no limit.
type Quota struct {
	Agents       int `json:"agents,omitempty" minimum:"0"`
	Environments int `json:"environments,omitempty" minimum:"0"`
	Repositories int `json:"repositories,omitempty" minimum:"0"`
	Deployments  int `json:"deployments,omitempty" minimum:"0"`
	Targets      int `json:"targets,omitempty" minimum:"0"`
	Tokens       int `json:"tokens,omitempty" minimum:"0"`
}

// CreateTenant is the request for a new tenant.
type CreateTenant struct {
	Name  string `json:"name" doc:"An RFC 1123 label, unique in the fleet."`
	Quota Quota  `json:"quota,omitzero"`
}

// UpdateTenant changes a tenant. Absent fields do not change.
type UpdateTenant struct {
	Quota *Quota `json:"quota,omitempty" doc:"Replaces the complete quota."`
}

// Suspension means that no new state is sent until it is lifted. Running workloads are not affected.
type Suspension struct {
	At     time.Time `json:"at,omitzero"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Suspend is the request for a suspension.
type Suspend struct {
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Shown to users as the cause of the suspension."`
}

// Fleet has the state of the whole fleet.
type Fleet struct {
	Epoch       int64       `json:"epoch" doc:"Rises when a backup is restored."`
	Suspension  *Suspension `json:"suspension,omitempty" doc:"Set while the whole fleet is frozen."`
	Agents      int         `json:"agents"`
	Connected   int         `json:"connected"`
	Deployments int         `json:"deployments"`
	Targets     int         `json:"targets"`
}

// FleetSettings has the settings of the whole fleet.
type FleetSettings struct {
	Epoch      int64       `json:"epoch" doc:"Rises when a backup is restored."`
	Suspension *Suspension `json:"suspension,omitempty" doc:"Set while the whole fleet is frozen."`
}

// Member is a role in a tenant, for a person or for a group of the identity provider.
type Member struct {
	Kind      string    `json:"kind" enum:"person,group"`
	Subject   string    `json:"subject" doc:"Name of the person or the group at the identity provider."`
	Role      string    `json:"role" enum:"viewer,deployer,admin"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
}

// PutMember assigns a role.
type PutMember struct {
	Role string `json:"role" enum:"viewer,deployer,admin"`
}

// APIToken is an API token, without the token itself.
type APIToken struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Role      string    `json:"role" doc:"viewer, deployer, or admin in its tenant, or fleet-admin."`
	Valid     bool      `json:"valid"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
	CreatedBy string    `json:"createdBy,omitempty"`
	ExpiresAt time.Time `json:"expiresAt,omitzero" doc:"Absent if it does not expire."`
	RevokedAt time.Time `json:"revokedAt,omitzero"`
}

// CreateAPIToken is the request for a token.
type CreateAPIToken struct {
	Name      string `json:"name" doc:"Name of the user of the token; it appears in the audit log."`
	Role      string `json:"role" enum:"viewer,deployer,admin,fleet-admin" doc:"At most the role of the caller."`
	ExpiresIn string `json:"expiresIn,omitempty" doc:"How long it is valid, such as 12h or 90d; no expiry if absent."`
}

// NewAPIToken is an APIToken with the token itself, which is returned only once.
type NewAPIToken struct {
	APIToken
	Token string `json:"token"`
}

// Grant lets another tenant deploy to an environment, within limits.
type Grant struct {
	ID          string `json:"id"`
	Environment string `json:"environment" doc:"The environment. For received grants OWNER/NAME, as deployments refer to it."`
	Owner       string `json:"owner" doc:"Name of the tenant that owns the environment."`
	Grantee     string `json:"grantee" doc:"Name of the tenant that may deploy to it."`
	Direction   string `json:"direction" enum:"given,received"`
	Limits      Limits `json:"limits"`
	// ServiceAccount overrides the setting of the deployments.
	ServiceAccount string    `json:"serviceAccount,omitempty" doc:"NAMESPACE/NAME of the ServiceAccount that the agent impersonates for all deployments that use the grant. Overrides the setting of the deployments."`
	CreatedAt      time.Time `json:"createdAt,omitzero"`
}

// Limits restricts the objects that a deployment may touch. Absent fields mean no restriction.
type Limits struct {
	Namespaces []string `json:"namespaces,omitempty" nullable:"false" doc:"If set, cluster-scoped kinds are not allowed."`
	Kinds      []string `json:"kinds,omitempty" nullable:"false" doc:"For example, ConfigMap, Deployment.apps, or *.example.com."`
}

// CreateGrant is the request for a grant.
type CreateGrant struct {
	Environment string `json:"environment"`
	Grantee     string `json:"grantee" doc:"Name of the tenant that may deploy to it."`
	Limits      Limits `json:"limits,omitzero"`
	// ServiceAccount overrides the setting of the deployments.
	ServiceAccount string `json:"serviceAccount,omitempty" doc:"NAMESPACE/NAME of the ServiceAccount that the agent impersonates for all deployments that use the grant. If absent, the setting of the deployments applies."`
}

// UpdateGrant replaces the terms of a grant.
type UpdateGrant struct {
	Limits         Limits  `json:"limits"`
	ServiceAccount *string `json:"serviceAccount,omitempty" doc:"As in CreateGrant. Absent: no change. Empty: the setting of the deployments applies."`
}
