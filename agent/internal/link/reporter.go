package link

import (
	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
)

var _ engine.Reporter = (*Client)(nil)

// Status queues the newest state of a target. It does not block.
func (c *Client) Status(s engine.Status) {
	if err := wire.CheckTarget(s.Target); err != nil {
		c.log.Warn("dropping a status with a target id that is not valid", obs.Err(err))
		return
	}
	c.statuses.put(s)
	c.wake.Set()
}

// Event queues an event. It does not block. When too many events are queued, it drops the oldest one and counts it.
func (c *Client) Event(target fleet.TargetID, e fleet.Event) {
	if c.events.put(wire.Event{Target: target, Event: e}) {
		c.cfg.Metrics.eventsDropped.Inc()
	}
	c.wake.Set()
}

// Reporter returns the reporter for the engine of an agent. It drops the reports of an engine that is still running when
// the server names another agent: the server would take them for reports of the new one.
func (c *Client) Reporter(agent fleet.AgentID) engine.Reporter { return agentReporter{c, agent} }

type agentReporter struct {
	client *Client
	agent  fleet.AgentID
}

// Status implements engine.Reporter.
func (r agentReporter) Status(s engine.Status) {
	r.report(func() { r.client.Status(s) })
}

// Event implements engine.Reporter.
func (r agentReporter) Event(target fleet.TargetID, e fleet.Event) {
	r.report(func() { r.client.Event(target, e) })
}

func (r agentReporter) report(fn func()) {
	r.client.reports.RLock()
	defer r.client.reports.RUnlock()
	if r.client.agent == "" || r.client.agent == r.agent {
		fn()
	}
}
