package gateway_test

import (
	"context"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/gatewaytest"
	"github.com/kedge-dev/kedge/server/internal/control"
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

// hangingDesk is a control room that never says what a target is.
type hangingDesk struct {
	*gatewaytest.Memory
	asked, goOn chan struct{}
}

func (d *hangingDesk) TargetsOf(ctx context.Context, agent fleet.Agent, ids []fleet.TargetID) ([]control.AgentTarget, error) {
	if len(ids) > 0 {
		d.asked <- struct{}{}
		<-d.goOn
	}
	return d.Memory.TargetsOf(ctx, agent, ids)
}

// An agent whose session does not end in the time that a stopping server has does not read as connected afterwards
// (invariant 8).
func TestTheEndOfASessionThatHangsIsNotedWhenTheServerStops(t *testing.T) {
	t.Parallel()
	d := &hangingDesk{Memory: gatewaytest.NewMemory(), asked: make(chan struct{}, 8), goOn: make(chan struct{})}
	agent, token := d.Enroll("edge-1")
	s := serveControl(t, d, gatewaytest.Options{StopGrace: 50 * time.Millisecond})
	p, _ := connect(t, s, token, nil)
	p.snapshot()
	if err := d.AwaitOpen(within(t), 1); err != nil {
		t.Fatal(err)
	}
	d.Deploy(agent, "shop", configMap(t, "1"))
	<-d.asked
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop() }()
	if err := d.AwaitOpen(within(t), 0); err != nil {
		t.Errorf("an agent reads as connected to a server that has stopped: %v", err)
	}
	close(d.goOn)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
