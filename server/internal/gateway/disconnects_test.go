package gateway_test

import (
	"context"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/gatewaytest"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// slowControl delays the record of a new connection.
type slowControl struct {
	*gatewaytest.Memory
	slow                    fleet.AgentID
	connecting, resume      chan struct{}
	rejected, disconnecting chan struct{}
}

func (d *slowControl) AgentConnected(ctx context.Context, c fleet.Connection) error {
	if c.AgentID == d.slow {
		d.connecting <- struct{}{}
		<-d.resume
	}
	return d.Memory.AgentConnected(ctx, c)
}

func (d *slowControl) AgentDisconnected(ctx context.Context, c fleet.Connection, lastSeen time.Time) error {
	if c.AgentID != d.slow {
		d.disconnecting <- struct{}{}
	}
	return d.Memory.AgentDisconnected(ctx, c, lastSeen)
}

func (d *slowControl) AuthenticateAgentToken(ctx context.Context, token string) (fleet.Agent, fleet.Tenant, fleet.AgentToken, error) {
	agent, tenant, found, err := d.Memory.AuthenticateAgentToken(ctx, token)
	if err != nil {
		d.rejected <- struct{}{}
	}
	return agent, tenant, found, err
}

// An agent whose token is revoked while its connection is being recorded is not shown as connected afterwards
// (invariant 8).
//
// covers: C8
func TestEndOfASessionIsRecordedAfterItsStart(t *testing.T) {
	t.Parallel()
	d := &slowControl{
		Memory: gatewaytest.NewMemory(), connecting: make(chan struct{}, 1), resume: make(chan struct{}),
		rejected: make(chan struct{}, 8), disconnecting: make(chan struct{}, 8),
	}
	agent, token := d.Enroll("edge-1")
	_, other := d.Enroll("edge-2")
	d.slow = agent.ID
	s := serveControl(t, d, gatewaytest.Options{})
	p := dial(t, s, token)
	ended := make(chan error, 1)
	go func() { ended <- p.handshake() }()
	<-d.connecting
	d.Revoke(token)
	<-d.rejected // the gateway checks the token of its session again, and ends it
	q, _ := connect(t, s, other, nil)
	q.cancel()
	<-d.disconnecting // the gateway records the ends of sessions one after another
	close(d.resume)
	<-ended
	if err := d.AwaitOpen(within(t), 0); err != nil {
		t.Errorf("an agent is shown as connected: %v, %+v", err, d.Connections())
	}
}

// blockedControl never returns a single target.
type blockedControl struct {
	*gatewaytest.Memory
	asked, resume chan struct{}
}

func (d *blockedControl) TargetsOf(ctx context.Context, agent fleet.Agent, ids []fleet.TargetID) ([]control.AgentTarget, error) {
	if len(ids) > 0 {
		d.asked <- struct{}{}
		<-d.resume
	}
	return d.Memory.TargetsOf(ctx, agent, ids)
}

// An agent whose session does not end within the stop grace period is not shown as connected afterwards
// (invariant 8).
func TestEndOfABlockedSessionIsRecordedWhenTheServerStops(t *testing.T) {
	t.Parallel()
	d := &blockedControl{Memory: gatewaytest.NewMemory(), asked: make(chan struct{}, 8), resume: make(chan struct{})}
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
		t.Errorf("an agent is shown as connected to a stopped server: %v", err)
	}
	close(d.resume)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
