package fleet

import "time"

// Limits of access rules.
const (
	// MaxAccessRules is how many rules a tenant may have.
	MaxAccessRules = 1000
	// MaxAccessEntries is how many subjects, agents, and environments a rule may have, each.
	MaxAccessEntries = 256
)

// AccessRule lets subjects reach the API servers of clusters through the tunnels of agents of a tenant. Without a rule,
// nobody has access. What a caller may do in a cluster is decided by the RBAC of the cluster.
type AccessRule struct {
	ID       AccessRuleID
	TenantID TenantID
	Name     string          // RFC 1123 label, unique in its tenant
	Subjects []AccessSubject // sorted by kind and name
	// AllAgents means every agent of the tenant, also later ones. It is never implied by empty lists: a rule whose agents
	// and environments are deleted gives no access.
	AllAgents    bool
	Agents       []AccessAgent       // sorted by name
	Environments []AccessEnvironment // sorted by name; the rule covers the agents that they select
	// ReadOnly limits the access to requests that change nothing.
	ReadOnly     bool
	SpecRevision int64 // rises with every edit
	CreatedAt    time.Time
}

// AccessAgent is an agent of a rule. Rules refer to the ID: an agent that gets the name of a deleted one has no access.
type AccessAgent struct {
	ID   AgentID
	Name string // filled on reads
}

// AccessEnvironment is an environment of a rule, by ID.
type AccessEnvironment struct {
	ID   EnvironmentID
	Name string // filled on reads
}

// AccessSubject is a caller, or a group of callers.
type AccessSubject struct {
	Kind AccessSubjectKind
	// Name is the name of the person, of the group of the identity provider, or of the API token. "fleet/NAME" is a token of
	// the fleet, any other one a token of the tenant.
	Name string
}

// FleetTokenPrefix is the prefix of the name of an AccessSubject that is a token of the fleet.
const FleetTokenPrefix = "fleet/"

// AccessSubjectKind is the kind of an AccessSubject.
type AccessSubjectKind string

// The kinds of subject.
const (
	AccessToken  AccessSubjectKind = "token"
	AccessPerson AccessSubjectKind = "person"
	AccessGroup  AccessSubjectKind = "group"
)

// Keys of the extra fields that a caller has in a cluster. Their values are IDs; the last one is the token or the session of
// the caller. The manifest of an agent allows the impersonation of exactly these keys, and of AccessGroups.
const (
	AccessExtraTenant = "kedge.dev/tenant-id"
	AccessExtraAgent  = "kedge.dev/agent-id"
	AccessExtraToken  = "kedge.dev/token-id"
)

// AccessExtras returns the keys of the extra fields, sorted.
func AccessExtras() []string { return []string{AccessExtraAgent, AccessExtraTenant, AccessExtraToken} }

// AccessTenantGroup returns the group of all callers from a tenant.
func AccessTenantGroup(tenant string) string { return "kedge:tenant:" + tenant }

// AccessRoleGroup returns the group of the callers with a role in a tenant.
func AccessRoleGroup(tenant string, role Role) string {
	return AccessTenantGroup(tenant) + ":" + string(role)
}

// AccessGroups returns every group that a caller from a tenant can have.
func AccessGroups(tenant string) []string {
	out := []string{AccessTenantGroup(tenant)}
	for _, role := range []Role{RoleViewer, RoleDeployer, RoleAdmin} {
		out = append(out, AccessRoleGroup(tenant, role))
	}
	return out
}

// AccessPersonUser returns the user name of a person.
func AccessPersonUser(name string) string { return "kedge:person:" + name }

// AccessTokenUser returns the user name of an API token. tenant is "" for a token of the fleet.
func AccessTokenUser(tenant, name string) string {
	if tenant == "" {
		return "kedge:token:" + name
	}
	return "kedge:token:" + tenant + ":" + name
}
