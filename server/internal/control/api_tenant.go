package control

import (
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// CreateTenant asks for a new tenant.
type CreateTenant struct {
	Name  string
	Quota fleet.Quota
}

// UpdateTenant changes a tenant; nil fields stay as they are.
type UpdateTenant struct {
	Quota *fleet.Quota
}

// FleetView is the whole fleet in a few numbers.
type FleetView struct {
	fleet.Settings
	Agents, Connected, Deployments, Targets int
}

// CreateAPIToken asks for a new token.
type CreateAPIToken struct {
	Name string
	Role fleet.Role // of a fleet token: fleet.RoleFleetAdmin, which "" means too
	// ExpiresIn is how long it is accepted; 0 means until it is revoked.
	ExpiresIn time.Duration
}

// Login is a person whom an identity provider has vouched for.
type Login struct {
	Issuer, Subject string   // what the provider calls itself and the person: never given to anybody else
	Name            string   // what memberships and the audit log name them by
	DisplayName     string   // for the eye alone; may be ""
	Groups          []string // as the provider names them
	FleetAdmin      bool     // one of the groups makes them one
	TTL             time.Duration
	// For the audit log.
	Request string // id of the request
	Address string // where the person came from
}

// CreateEnvironment asks for a new environment.
type CreateEnvironment struct {
	Name        string
	Agents      []string
	MatchLabels map[string]string
}

// UpdateEnvironment changes which agents an environment selects; nil fields stay as they are.
type UpdateEnvironment struct {
	Agents      *[]string
	MatchLabels *map[string]string
}

// EnvironmentView is an environment as users see it.
type EnvironmentView struct {
	fleet.Environment
	// Agents are the names of those that it selects now, sorted; Environment.Agents are those that it
	// was told by name.
	Agents      []string
	Deployments int // of all tenants that deploy to it
}

// CreateGrant asks to let another tenant deploy to an environment.
type CreateGrant struct {
	Environment string
	Grantee     string // name of the other tenant
	Limits      fleet.Limits
	// ServiceAccount is who agents act as for what is deployed by the grant; "" leaves it to the deployments.
	ServiceAccount string
}

// UpdateGrant replaces the terms of a grant.
type UpdateGrant struct {
	Limits         fleet.Limits
	ServiceAccount *string // nil leaves it as it is
}
