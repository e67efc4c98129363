package fleet

import "time"

// Tenant is the wall: it owns everything below it.
type Tenant struct {
	ID        TenantID
	Name      string
	CreatedAt time.Time
}

// DefaultTenant is the name of the tenant that a new server starts with.
const DefaultTenant = "default"

// Scope says how much of a cluster an agent may touch.
type Scope string

// An agent of scope cluster may touch every namespace and cluster-scoped kinds; one of scope
// namespaced only the namespaces that it lists.
const (
	ScopeCluster    Scope = "cluster"
	ScopeNamespaced Scope = "namespaced"
)

// Agent is an identity that connects from a cluster.
type Agent struct {
	ID         AgentID
	TenantID   TenantID
	Name       string // RFC 1123 label, unique in its tenant
	Labels     map[string]string
	Scope      Scope
	Namespaces []string // sorted; empty exactly when Scope is ScopeCluster
	CreatedAt  time.Time
}

// Connection is one replica of an agent, as it last introduced itself.
type Connection struct {
	SessionID      SessionID
	AgentID        AgentID
	TenantID       TenantID
	Replica        string // pod name or host name: tells replicas of one agent apart
	Version        string // of kedge-agent
	KubeVersion    string
	ClusterUID     string // UID of kube-system, "" when not readable
	RemoteAddr     string
	ConnectedAt    time.Time
	LastSeenAt     time.Time
	DisconnectedAt time.Time // zero while connected
}

// Connected reports whether the connection was open when it was last written.
func (c Connection) Connected() bool { return c.DisconnectedAt.IsZero() }

// AgentToken lets an agent in. The token itself is never stored.
type AgentToken struct {
	ID        TokenID
	TenantID  TenantID
	AgentID   AgentID
	Hash      []byte // SHA-256 of the token
	CreatedAt time.Time
	RevokedAt time.Time // zero while valid
}

// Role is what the holder of an API token may do.
type Role string

// RoleFleetAdmin may do everything in every tenant.
const RoleFleetAdmin Role = "fleet-admin"

// APIToken lets a person or a program in at the REST door.
type APIToken struct {
	ID        TokenID
	Name      string
	Role      Role
	Hash      []byte // SHA-256 of the token
	CreatedAt time.Time
}
