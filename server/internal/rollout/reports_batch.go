package rollout

import (
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// AgentReports is what one agent reported, for one batched write.
type AgentReports struct {
	Agent   fleet.Agent
	Reports []store.Report
	Events  []AgentEvent
}

// AgentEvent is an event as an agent tells it; Target is "" when it is about the agent itself.
type AgentEvent struct {
	Target fleet.TargetID
	Event  fleet.Event
}
