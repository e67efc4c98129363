package gateway_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/gatewaytest"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// changedAgent is a control whose agents are configured differently from some time on.
type changedAgent struct {
	*gatewaytest.Memory
	changed atomic.Bool
}

func (c *changedAgent) TargetsOf(ctx context.Context, agent fleet.Agent, ids []fleet.TargetID) ([]control.AgentTarget, error) {
	if c.changed.Load() {
		return nil, control.ErrAgentChanged
	}
	return c.Memory.TargetsOf(ctx, agent, ids)
}

// The agent connects again, and gets its new configuration before any newer state.
func TestNoStateIsSentWithAnOutdatedConfiguration(t *testing.T) {
	t.Parallel()
	memory := gatewaytest.NewMemory()
	agent, token := memory.Enroll("edge-1")
	target := memory.Deploy(agent, "web", configMap(t, "one"))
	c := &changedAgent{Memory: memory}
	srv := serveControl(t, c, gatewaytest.Options{})
	p, _ := connect(t, srv, token, nil)
	p.held()
	p.snapshot()
	c.changed.Store(true)
	memory.Desire(target.ID, configMap(t, "two"), func(*fleet.Desired) {})
	if frame := p.recv(); frame.GetGoodbye().GetReason() != "the configuration of the agent changed" {
		t.Errorf("received %v, want a Goodbye instead of the state", frame)
	}
}
