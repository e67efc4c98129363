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
func TestWhatIsLeftForLaterIsForWhenTheServerIsAway(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason string
		away   bool
		then   func(m *gatewaytest.Memory, id fleet.TargetID)
		want   func(d engine.Desired, kept fleet.Version) bool
	}{
		{"the server is away", true, func(*gatewaytest.Memory, fleet.TargetID) {},
			func(d engine.Desired, kept fleet.Version) bool { return d.State.Version == kept }},
		{"the server has something newer", false, func(m *gatewaytest.Memory, id fleet.TargetID) {
			m.Desire(id, configMaps(t, 3, 0), func(*fleet.Desired) {})
		}, func(d engine.Desired, kept fleet.Version) bool { return d.State.Compare(kept) > 0 }},
		{"the server has let go of it", false, func(m *gatewaytest.Memory, id fleet.TargetID) { m.Detach(id) },
			func(d engine.Desired, _ fleet.Version) bool { return d.State.Detached }},
		{"the server has the same", false, func(*gatewaytest.Memory, fleet.TargetID) {},
			func(d engine.Desired, kept fleet.Version) bool { return d.State.Version == kept }},
	}
	for _, tt := range cases {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			m := gatewaytest.NewMemory()
			agent, token := m.Enroll("edge-1")
			set := configMaps(t, 2, 0)
			target := m.Deploy(agent, "app", set)
			kept := engine.Desired{Target: target.ID, Deployment: "app", State: target.Desired, Objects: set}
			tt.then(m, target.ID)
			s := serve(t, m, gatewaytest.Options{})
			address, last := "grpc://"+s.Addr(), "pending 0"
			if tt.away {
				address, last = "grpc://127.0.0.1:1", "set "+string(target.ID)
			}
			e := resumedWith(t, address, token, agent.ID, []engine.Desired{kept},
				engine.Held{Target: target.ID, Version: target.Desired.Version, Digest: "another one"})
			e.awaitCall(within(t), t, last)
			if got := e.received(); len(got) != 1 || !tt.want(got[0], target.Desired.Version) {
				t.Errorf("the engine was given %+v", got)
			}
		})
	}
}

// What is in the cluster may be found only while the server is away, when the cluster did not answer before: each
// failure is an occasion to look, and what is found is gone on with before the next try.
//
// covers: D4
func TestWhatIsFoundWhileTheServerIsAwayIsGoneOnWith(t *testing.T) {
	t.Parallel()
	set := configMaps(t, 1, 0)
	digest, _, _ := set.Pack()
	kept := engine.Desired{Target: "tgt-1", Deployment: "app", Objects: set,
		State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 3}, Digest: digest}}
	e, looks, ready := &memoryEngine{changed: make(chan struct{}, 1)}, make(chan int, 100), make(chan *link.Client, 1)
	r := start(t, "grpc://127.0.0.1:1", "token", func(c *link.Config) {
		look := 0
		c.Disconnected = func(context.Context) {
			if look++; look == 3 { // the cluster answers at last
				client := <-ready
				client.Resume("agt-1", e,
					[]engine.Held{{Target: "tgt-1", Version: kept.State.Version, Digest: "another one"}}, []engine.Desired{kept})
			}
			looks <- look
		}
	})
	e.reporter = r.Client
	ready <- r.Client
	e.awaitCall(within(t), t, "set tgt-1")
	if n := len(looks); n != 3 {
		t.Errorf("the engine went on after %d looks, want that at the third", n)
	}
}

// covers: D4
func TestALostConnectionIsAnOccasionToLookToo(t *testing.T) {
	t.Parallel()
	g, address := newGate(t, "token")
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
	ctx := within(t)
	for range 2 {
		g.attempt(ctx, t, "token")
		frame(ctx, t, g, (*agentv1.ConnectRequest).GetHello)
		g.send <- &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Goodbye{Goodbye: &agentv1.Goodbye{Reason: "test"}}}
		select {
		case <-away:
		case <-ctx.Done():
			t.Fatal("a connection was lost, and nobody looked")
		}
		if n := len(g.attempts); n != 0 {
			t.Errorf("the agent has come back %d times before it was looked", n)
		}
		back <- struct{}{}
	}
}
