package fleet

import "time"

// MaxAgentTokens is how many tokens of an agent may be valid at once: two, so that a rotation loses
// nothing.
const MaxAgentTokens = 2

// AgentToken lets an agent connect.
type AgentToken struct {
	ID        TokenID
	TenantID  TenantID
	AgentID   AgentID
	Hash      []byte // SHA-256 of the token
	CreatedAt time.Time
	CreatedBy string
	LastUsed  time.Time // coarse; zero when it never was
	RevokedAt time.Time // zero while valid
}

// Valid reports whether it still opens a connection.
func (t AgentToken) Valid() bool { return t.RevokedAt.IsZero() }

// Role is what somebody may do in a tenant.
type Role string

// The roles, each with what the one before it may do. RoleFleetAdmin is of no tenant and may do
// everything everywhere.
const (
	RoleViewer     Role = "viewer"      // read
	RoleDeployer   Role = "deployer"    // deployments: create, change, sync, roll back, suspend, delete
	RoleAdmin      Role = "admin"       // agents, tokens, environments, repositories, credentials, members
	RoleFleetAdmin Role = "fleet-admin" // tenants, quotas, the freeze of the fleet
)

// APIToken lets somebody call the API: a program, or a person's session.
type APIToken struct {
	ID       TokenID
	TenantID TenantID // "" for a fleet admin and for sessions, whose roles come from memberships
	Name     string
	Role     Role     // "" for a session
	Subject  string   // the person of a session; "" for a token of its own
	Groups   []string // of that person, as the identity provider gave them at login; sorted
	Hash     []byte   // SHA-256 of the token
	// FleetAdmin says that the identity provider's groups made the session a fleet admin's.
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

// AuditEvent says who did what, through which door, to what. It has no secrets in it.
type AuditEvent struct {
	Seq      int64
	At       time.Time
	TenantID TenantID // "" for what concerns the whole fleet
	Actor    string   // name of the token or person, or "system"
	Door     string   // rest, agent, hook, server
	Action   string   // a verb of a resource: "deployment.create"
	Kind     string   // of the resource: "deployment"
	Name     string   // of the resource
	ID       string   // of the resource; "" when it has none
	Request  string   // id of the request in the log
	Address  string   // where the caller came from
	Detail   string   // one line for a person
}
