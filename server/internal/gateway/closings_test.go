package gateway_test

import (
	"context"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// slowDesk is a control room that takes its time to note that an agent has come.
type slowDesk struct {
	*gatewaytest.Memory
	slow             fleet.AgentID
	coming, goOn     chan struct{}
	refused, leaving chan struct{}
}

func (d *slowDesk) AgentConnected(ctx context.Context, c fleet.Connection) error {
	if c.AgentID == d.slow {
		d.coming <- struct{}{}
		<-d.goOn
	}
	return d.Memory.AgentConnected(ctx, c)
}

func (d *slowDesk) AgentDisconnected(ctx context.Context, c fleet.Connection, lastSeen time.Time) error {
	if c.AgentID != d.slow {
		d.leaving <- struct{}{}
	}
	return d.Memory.AgentDisconnected(ctx, c, lastSeen)
}

func (d *slowDesk) AuthenticateAgentToken(ctx context.Context, token string) (fleet.Agent, fleet.Tenant, fleet.AgentToken, error) {
	agent, tenant, found, err := d.Memory.AuthenticateAgentToken(ctx, token)
	if err != nil {
		d.refused <- struct{}{}
	}
	return agent, tenant, found, err
}

// An agent that is shut out while its arrival is being noted does not read as connected afterwards (invariant 8).
//
// covers: C8
func TestTheEndOfASessionIsNotedAfterItsBeginning(t *testing.T) {
	t.Parallel()
	d := &slowDesk{
		Memory: gatewaytest.NewMemory(), coming: make(chan struct{}, 1), goOn: make(chan struct{}),
		refused: make(chan struct{}, 8), leaving: make(chan struct{}, 8),
	}
	agent, token := d.Enroll("edge-1")
	_, other := d.Enroll("edge-2")
	d.slow = agent.ID
	s := serveControl(t, d, gatewaytest.Options{})
	p := dial(t, s, token)
	ended := make(chan error, 1)
	go func() { ended <- p.introduce() }()
	<-d.coming
	d.Revoke(token)
	<-d.refused // its session is looked at again, and ended
	q, _ := connect(t, s, other, nil)
	q.cancel()
	<-d.leaving // ends are noted one after another
	close(d.goOn)
	<-ended
	if err := d.AwaitOpen(within(t), 0); err != nil {
		t.Errorf("somebody reads as connected: %v, %+v", err, d.Connections())
	}
}
