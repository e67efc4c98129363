package fleet

import "time"

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
	Spec       int64    // rises with every edit; see If-Match
	CreatedAt  time.Time
	// Capabilities is Capabilities.Hash of what its cluster offers, as it last told; "" before it has.
	Capabilities string
	// Uninstalling says that its objects are being deleted on request: no environment selects it any more.
	Uninstalling bool
}

// Connection is one replica of an agent, as it last introduced itself.
type Connection struct {
	SessionID      SessionID
	AgentID        AgentID
	TenantID       TenantID
	Replica        string // pod name or host name: tells replicas of one agent apart
	Server         string // the server replica that holds it: see ServerReplica
	Version        string // of kedge-agent
	KubeVersion    string
	ClusterUID     string // UID of kube-system, "" when not readable
	RemoteAddr     string
	Standby        bool // another replica leads; this one waits to take over
	ConnectedAt    time.Time
	LastSeenAt     time.Time
	DisconnectedAt time.Time // zero while connected
}

// Connected reports whether the connection was open when it was last written.
func (c Connection) Connected() bool { return c.DisconnectedAt.IsZero() }

// Role is what the replica is for: "leader" or "standby".
func (c Connection) Role() string {
	if c.Standby {
		return "standby"
	}
	return "leader"
}

// Leads reports whether the connection is open and of the replica that speaks for its agent: without
// one the agent is not there, however many others wait.
func (c Connection) Leads() bool { return c.Connected() && !c.Standby }

// ServerReplica is one running server. Its beat tells the others that it is alive.
type ServerReplica struct {
	ID        string // made anew at every start
	Address   string // how other replicas reach it; "" when they cannot
	Version   string
	StartedAt time.Time
	BeatAt    time.Time
}
