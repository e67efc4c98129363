package auth

import "github.com/kedge-dev/kedge/internal/fleet"

// Principal is an authenticated caller.
type Principal struct {
	Name    string // of the token or the person
	TokenID fleet.TokenID
	// TokenHash is the hash of the token or session.
	TokenHash []byte
	Session   bool // a logged-in person, not an API token
	Kube      bool // the caller may only send requests to clusters
	// Subject is what the caller is for access rules: a token or a person; "" for the server itself and for other callers
	// without a token, which no rule can name.
	Subject fleet.AccessSubjectKind
	// Groups are the groups of a person, from the identity provider at login; sorted.
	Groups     []string
	FleetAdmin bool
	Roles      map[fleet.TenantID]fleet.Role // by tenant; ignored for a fleet admin

	// For the audit log.
	Component string // rest, agent, hook, git, kubernetes, server
	Request   string // id of the request
	Address   string // remote address of the caller

	// Owner is the Kubernetes resource for which the caller acts; zero for all other callers.
	Owner fleet.Owner
	// AcceptRewound accepts an Owner that is older than what was applied from it before.
	AcceptRewound bool
	// AbandonDeletions lets Owner delete an agent that has not completed its deletions.
	AbandonDeletions bool
}

// System returns the principal of the server itself.
func System() Principal { return Principal{Name: "system", Component: "server", FleetAdmin: true} }

var rank = map[fleet.Role]int{fleet.RoleViewer: 1, fleet.RoleDeployer: 2, fleet.RoleAdmin: 3, fleet.RoleFleetAdmin: 4}

// KnownRole reports whether role can be granted in a tenant.
func KnownRole(role fleet.Role) bool { return rank[role] > 0 && role != fleet.RoleFleetAdmin }

// Has reports whether p has a role or a higher one in a tenant.
func (p Principal) Has(tenant fleet.TenantID, role fleet.Role) bool {
	if p.FleetAdmin {
		return true
	}
	have := p.Roles[tenant]
	return rank[have] > 0 && rank[have] >= rank[role]
}

// MayRead reports whether p may read the resources of a tenant.
func (p Principal) MayRead(tenant fleet.TenantID) bool { return p.Has(tenant, fleet.RoleViewer) }

// MayDeploy reports whether p may change the deployments of a tenant.
func (p Principal) MayDeploy(tenant fleet.TenantID) bool { return p.Has(tenant, fleet.RoleDeployer) }

// MayAdmin reports whether p may change all other resources of a tenant.
func (p Principal) MayAdmin(tenant fleet.TenantID) bool { return p.Has(tenant, fleet.RoleAdmin) }

// Better returns the higher of two roles.
func Better(a, b fleet.Role) fleet.Role {
	if rank[a] >= rank[b] {
		return a
	}
	return b
}
