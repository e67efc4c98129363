package rollout

import (
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// AgentReports are the reports of one agent, for one batched write.
type AgentReports struct {
	Agent   fleet.Agent
	Reports []store.Report
	Events  []AgentEvent
}

// AgentEvent is an event of an agent; Target is "" if it is about the agent itself.
type AgentEvent struct {
	Target fleet.TargetID
	Event  fleet.Event
}
