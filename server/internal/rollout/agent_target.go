package rollout

import (
	"github.com/kedge-dev/kedge/internal/fleet"
)

// AgentTarget is a target as its agent is told of it.
type AgentTarget struct {
	fleet.Target
	Tenant string // name of the deployment's tenant, which is not the agent's when the environment was granted
}

// Released reports whether the agent has let go of the target and knows nothing of it any more.
func (t AgentTarget) Released() bool {
	return t.Desired.Detached && t.Observed.Sync == fleet.SyncDetached && t.Observed.Version == t.Desired.Version
}
