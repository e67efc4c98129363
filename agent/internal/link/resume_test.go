package link_test

import (
	"context"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// covers: D4
func TestDeferredStatesAreDeliveredWithoutAServer(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason string
		away   bool
		then   func(m *gatewaytest.Memory, id fleet.TargetID)
		want   func(d engine.Desired, cached fleet.Version) bool
	}{
		{"the server is unavailable", true, func(*gatewaytest.Memory, fleet.TargetID) {},
			func(d engine.Desired, cached fleet.Version) bool { return d.State.Version == cached }},
		{"the server has a newer state", false, func(m *gatewaytest.Memory, id fleet.TargetID) {
			m.Desire(id, configMaps(t, 3, 0), func(*fleet.Desired) {})
		}, func(d engine.Desired, cached fleet.Version) bool { return d.State.Compare(cached) > 0 }},
		{"the server has detached the target", false, func(m *gatewaytest.Memory, id fleet.TargetID) { m.Detach(id) },
			func(d engine.Desired, _ fleet.Version) bool { return d.State.Detached }},
		{"the server has the same state", false, func(*gatewaytest.Memory, fleet.TargetID) {},
			func(d engine.Desired, cached fleet.Version) bool { return d.State.Version == cached }},
	}
	for _, tt := range cases {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			m := gatewaytest.NewMemory()
			agent, token := m.Enroll("edge-1")
			set := configMaps(t, 2, 0)
			target := m.Deploy(agent, "app", set)
			cached := engine.Desired{Target: target.ID, Deployment: "app", State: target.Desired, Objects: set}
			tt.then(m, target.ID)
			s := serve(t, m, gatewaytest.Options{})
			address, last := "grpc://"+s.Addr(), "pending 0"
			if tt.away {
				address, last = "grpc://127.0.0.1:1", "set "+string(target.ID)
			}
			e := resumedWith(t, address, token, agent.ID, []engine.Desired{cached},
				engine.Held{Target: target.ID, Version: target.Desired.Version, Digest: "another one"})
			e.awaitCall(testContext(t), t, last)
			if got := e.received(); len(got) != 1 || !tt.want(got[0], target.Desired.Version) {
				t.Errorf("the engine received %+v", got)
			}
		})
	}
}

// The cluster may not answer when the agent starts. Disconnected is called after each failed attempt to connect, and the
// states that it resumes with are delivered before the next attempt.
//
// covers: D4
func TestResumeAfterAFailedAttempt(t *testing.T) {
	t.Parallel()
	set := configMaps(t, 1, 0)
	digest, _, _ := set.Pack()
	cached := engine.Desired{Target: "tgt-1", Deployment: "app", Objects: set,
		State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 3}, Digest: digest}}
	e, attempts, ready := &memoryEngine{changed: make(chan struct{}, 1)}, make(chan int, 100), make(chan *link.Client, 1)
	r := start(t, "grpc://127.0.0.1:1", "token", func(c *link.Config) {
		attempt := 0
		c.Disconnected = func(context.Context) {
			if attempt++; attempt == 3 { // now the cluster answers
				client := <-ready
				client.Resume("agt-1", e,
					[]engine.Held{{Target: "tgt-1", Version: cached.State.Version, Digest: "another one"}}, []engine.Desired{cached})
			}
			attempts <- attempt
		}
	})
	e.reporter = r.Client
	ready <- r.Client
	e.awaitCall(testContext(t), t, "set tgt-1")
	if n := len(attempts); n != 3 {
		t.Errorf("resumed after %d attempts, want 3", n)
	}
}

// covers: D4
func TestLostConnectionCallsDisconnected(t *testing.T) {
	t.Parallel()
	g, address := newTokenServer(t, "token")
	away, back := make(chan struct{}), make(chan struct{})
	start(t, address, "token", func(c *link.Config) {
		c.Disconnected = func(ctx context.Context) {
			select {
			case away <- struct{}{}:
				<-back
			case <-ctx.Done(): // the test is over
			}
		}
	})
	ctx := testContext(t)
	for range 2 {
		g.attempt(ctx, t, "token")
		frame(ctx, t, g, (*agentv1.ConnectRequest).GetHello)
		g.send <- &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Goodbye{Goodbye: &agentv1.Goodbye{Reason: "test"}}}
		select {
		case <-away:
		case <-ctx.Done():
			t.Fatal("a connection was lost, and Disconnected was not called")
		}
		if n := len(g.attempts); n != 0 {
			t.Errorf("the agent reconnected %d times before Disconnected returned", n)
		}
		back <- struct{}{}
	}
}
