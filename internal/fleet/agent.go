package fleet

import (
	"slices"
	"time"
)

// Scope defines how much of a cluster an agent may touch.
type Scope string

// An agent with scope cluster may touch every namespace and cluster-scoped kinds. An agent with scope
// namespaced may touch only the namespaces that it lists.
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
	// EngineNamespace is the namespace of the Argo CD that applies for this agent, in the cluster of the agent; "" means that
	// the agent applies by itself.
	EngineNamespace string
	// DeliverGitCredentials lets the agent store the credentials of private repositories in that namespace, for Argo CD. It
	// is set only together with EngineNamespace.
	DeliverGitCredentials bool
	// Instance is set for an engine instance: push environments may be placed on the agent. It is set only together with
	// EngineNamespace.
	Instance bool
	// Draining keeps push environments away from an engine instance, and moves those that it serves to another one.
	Draining bool
	// Tunnel lets callers with an AccessRule reach the API server of the cluster through the agent. The agent itself does not
	// depend on it: it has the flag --tunnel.
	Tunnel bool
	// Kinds selects the kinds of objects that the agent manages.
	Kinds KindFilter
	// KindsFromConfig means that the configuration file of the agent declares Kinds. Only the file can change them then.
	KindsFromConfig bool
	SpecRevision    int64 // rises with every edit; see If-Match
	CreatedAt       time.Time
	// Capabilities is Capabilities.Hash of what its cluster offers, as it last told; "" before it has.
	Capabilities string
	// Uninstalling is set while the objects of the agent are deleted on request: no environment selects the
	// agent any more.
	Uninstalling bool
}

// SameToAgent reports whether two versions of an agent are configured equally for the agent itself.
func (a Agent) SameToAgent(b Agent) bool {
	return a.ID == b.ID && a.Scope == b.Scope && slices.Equal(a.Namespaces, b.Namespaces) && a.Kinds.Equal(b.Kinds) &&
		a.EngineNamespace == b.EngineNamespace && a.DeliverGitCredentials == b.DeliverGitCredentials && a.Instance == b.Instance
}

// Connection is one replica of an agent, as described in its last hello message.
type Connection struct {
	SessionID   SessionID
	AgentID     AgentID
	TenantID    TenantID
	Replica     string // pod name or host name; distinguishes the replicas of an agent
	Server      string // ID of the ServerReplica that holds the connection
	Version     string // version of kedge-agent
	KubeVersion string
	// EngineNamespace is the namespace of the Argo CD that the replica uses; "" if it applies by itself.
	EngineNamespace string
	ClusterUID      string // UID of kube-system, "" if not readable
	RemoteAddr      string
	Standby         bool // another replica leads
	ConnectedAt     time.Time
	LastSeenAt      time.Time
	DisconnectedAt  time.Time // zero while connected
}

// Connected reports whether the connection was open at the last write.
func (c Connection) Connected() bool { return c.DisconnectedAt.IsZero() }

// Role returns "leader" or "standby".
func (c Connection) Role() string {
	if c.Standby {
		return "standby"
	}
	return "leader"
}

// Leads reports whether the connection is open and its replica leads. An agent without a leading connection
// counts as not connected, even if standbys are connected.
func (c Connection) Leads() bool { return c.Connected() && !c.Standby }

// ServerReplica is one running server. It writes heartbeats for the other servers.
type ServerReplica struct {
	ID        string // new at every start
	Address   string // address for other replicas; "" if they cannot reach it
	Version   string
	StartedAt time.Time
	BeatAt    time.Time
}
