package control

import (
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// EnrollAgent is the request for a new agent.
type EnrollAgent struct {
	Name       string
	Labels     map[string]string
	Namespaces []string // if set: scope namespaced
	Token      string   // given by the user; "" means generated
	// EngineNamespace is the namespace of Argo CD in the cluster; "" means that the agent applies by itself.
	EngineNamespace string
	// DeliverGitCredentials requires EngineNamespace.
	DeliverGitCredentials bool
	// Instance lets push environments be placed on the agent. It requires EngineNamespace.
	Instance bool
	// Tunnel lets callers with an AccessRule reach the API server of the cluster through the agent.
	Tunnel bool
	// Kinds selects the kinds of objects that the agent manages.
	Kinds fleet.KindFilter
	// ConfigRepoURL is the repository of its configuration, or "".
	ConfigRepoURL string
}

// Enrollment is a new agent with its token, which is returned only once.
type Enrollment struct {
	Agent fleet.Agent
	Token string
}

// UpdateAgent changes an agent; nil fields do not change.
type UpdateAgent struct {
	Labels     *map[string]string
	Namespaces *[]string // empty: scope cluster
	// EngineNamespace can change only while the agent has no target; otherwise the update is a ConflictError.
	EngineNamespace       *string
	DeliverGitCredentials *bool
	// Instance can be cleared only while the agent serves no push environment.
	Instance *bool
	// Draining moves the push environments of an engine instance to another one.
	Draining *bool
	// Tunnel can change at any time. The agent needs the flag --tunnel and its permissions, which are in its manifest.
	Tunnel *bool
	// Kinds cannot change while the configuration file of the agent declares them; the update is a ConflictError then.
	Kinds *fleet.KindFilter
}

// AgentView is an agent for users.
type AgentView struct {
	fleet.Agent
	Connected   bool
	LastSeenAt  time.Time          // zero if it never connected; the current time while connected
	Connections []fleet.Connection // one per replica, newest state of each
	Warnings    []fleet.Cause      // version skew, several clusters with one agent, a failed rotation, …
	// ConfigWarning is why the newest configuration file is not in force, and then also the last of Warnings; otherwise
	// zero.
	ConfigWarning fleet.Cause
	Targets       int
}
