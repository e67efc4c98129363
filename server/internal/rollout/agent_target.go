package rollout

import (
	"github.com/kedge-dev/kedge/internal/fleet"
)

// AgentTarget is a target in the form for its agent.
type AgentTarget struct {
	fleet.Target
	Tenant string // name of the tenant of the deployment, which differs from the agent's if the environment was granted
	// Source is the source in force, for an agent that has Argo CD apply it; nil for a tombstone, for a detached target, and
	// for an agent that applies by itself.
	Source *fleet.EngineSource
	// SourceWaits is set if the agent needs a source, and the one in force does not belong to the commit of the desired
	// state: an edit is about to replace it. Nothing is sent until then.
	SourceWaits bool
}

// Released reports whether the agent has released the target.
func (t AgentTarget) Released() bool {
	return t.Desired.Detached && t.Observed.Sync == fleet.SyncDetached && t.Observed.Version == t.Desired.Version
}
