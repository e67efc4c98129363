package fleet

import "time"

// MaxAgentTokens is how many tokens of an agent may be valid at the same time: two, so that a rotation causes
// no interruption.
const MaxAgentTokens = 2

// AgentToken lets an agent connect.
type AgentToken struct {
	ID        TokenID
	TenantID  TenantID
	AgentID   AgentID
	Hash      []byte // SHA-256 of the token
	CreatedAt time.Time
	CreatedBy string
	LastUsed  time.Time // accurate to minutes; zero if it was never used
	RevokedAt time.Time // zero while valid
}

// Valid reports whether an agent can connect with the token.
func (t AgentToken) Valid() bool { return t.RevokedAt.IsZero() }

// Role defines what a caller may do in a tenant.
type Role string

// The roles. Each includes the permissions of the roles before it. RoleFleetAdmin belongs to no tenant and may
// do everything.
const (
	RoleViewer     Role = "viewer"      // read
	RoleDeployer   Role = "deployer"    // deployments: create, change, sync, roll back, suspend, delete
	RoleAdmin      Role = "admin"       // agents, tokens, environments, repositories, credentials, members
	RoleFleetAdmin Role = "fleet-admin" // tenants, quotas, the freeze of the fleet
)

// APIToken authenticates a caller of the API: a program, or the session of a person.
type APIToken struct {
	ID       TokenID
	TenantID TenantID // "" for a fleet admin and for sessions, whose roles come from memberships
	Name     string
	Role     Role     // "" for a session
	Subject  string   // the person of a session; "" for an API token
	Groups   []string // groups of that person, from the identity provider at login; sorted
	Hash     []byte   // SHA-256 of the token
	// FleetAdmin is set if the groups of the identity provider make the session a fleet admin.
	FleetAdmin bool
	CreatedAt  time.Time
	CreatedBy  string
	ExpiresAt  time.Time // zero: never
	RevokedAt  time.Time // zero while valid
}

// ValidAt reports whether it is accepted at a time.
func (t APIToken) ValidAt(now time.Time) bool {
	return t.RevokedAt.IsZero() && (t.ExpiresAt.IsZero() || now.Before(t.ExpiresAt))
}

// AuditEvent records who did what, through which API, to what. It contains no secrets.
type AuditEvent struct {
	Seq       int64
	At        time.Time
	TenantID  TenantID // "" for events of the whole fleet
	Actor     string   // name of the token or person, or "system"
	Component string   // rest, agent, hook, server
	Action    string   // resource and verb: "deployment.create"
	Kind      string   // kind of the resource: "deployment"
	Name      string   // name of the resource
	ID        string   // ID of the resource; "" if it has none
	Request   string   // ID of the request in the log
	Address   string   // address of the caller
	Detail    string   // one line for people
}
