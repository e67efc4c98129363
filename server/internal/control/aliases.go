package control

import "github.com/kedge-dev/kedge/server/internal/rollout"

// The types in which agents are told what to have and report what they have; see package rollout.
type (
	AgentTarget  = rollout.AgentTarget
	AgentReports = rollout.AgentReports
	AgentEvent   = rollout.AgentEvent
)
