package link

import (
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// EnvironmentServer is an engine that applies to push environments.
type EnvironmentServer interface {
	// Serve replaces the push environments of the engine. It does not block.
	Serve(environments []fleet.PushEnvironment)
}

// sentChecks tracks the results of checks that the server of a connection knows. Only the writer uses it after it has
// started.
type sentChecks struct {
	accepted bool // by Welcome
	last     *[]fleet.EnvironmentCheck
}

// nextChecks returns the results to send now; nil if the server knows them.
func (n *connection) nextChecks() *[]fleet.EnvironmentCheck {
	now := n.Client.checks.Load()
	if !n.checks.accepted || now == n.checks.last {
		return nil
	}
	n.checks.last = now
	return now
}

// ReportChecks returns the function with which the engine of an agent reports on its push environments. The function does
// not block.
func (c *Client) ReportChecks(agent fleet.AgentID) func([]fleet.EnvironmentCheck) {
	return func(l []fleet.EnvironmentCheck) {
		agentReporter{c, agent}.report(func() {
			c.checks.Store(&l)
			c.wake.Set()
		})
	}
}

// handleEnvironments collects the frames of a list, and passes the complete list to the engine.
func (n *connection) handleEnvironments(m *agentv1.PushEnvironments) error {
	items, err := wire.ParsePushEnvironments(m)
	if err != nil {
		return err
	}
	n.environments = append(n.environments, items...)
	if m.GetMore() {
		if len(n.environments) > fleet.MaxPushEnvironments {
			return wire.ErrFrame
		}
		return nil
	}
	list := n.environments
	n.environments = nil
	n.mu.Lock()
	e, ok := n.engine.(EnvironmentServer)
	n.mu.Unlock()
	if ok {
		e.Serve(list)
	}
	return nil
}
