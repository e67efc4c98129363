package link_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// covers: C6
func TestStandbyIsConnectedAndAppliesNothing(t *testing.T) {
	t.Parallel()
	g, address := newTokenServer(t, "token")
	welcomed := make(chan fleet.AgentID, 8)
	r := start(t, address, "token", func(c *link.Config) {
		c.Standby = true
		c.Welcomed = func(_ context.Context, w wire.Welcome) (link.Engine, []engine.Held, error) {
			welcomed <- w.AgentID
			return nil, nil, nil
		}
	})
	ctx := testContext(t)
	g.attempt(ctx, t, "token")
	hello := frame(ctx, t, g, (*agentv1.ConnectRequest).GetHello)
	if !hello.GetStandby() || len(hello.GetStateHash())+len(hello.GetStatusHash()) != 0 {
		t.Errorf("hello = %v, want standby and no states", hello)
	}
	// A server that does not know standby connections sends everything.
	set := configMaps(t, 1, 0)
	digest, packed, _ := set.Pack()
	desired := wire.Desired{Target: "tgt-1", Bundle: packed, State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 1}, Digest: digest}}
	g.send <- &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Desired{Desired: desired.Proto()}}
	g.send <- &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_SnapshotComplete{SnapshotComplete: &agentv1.SnapshotComplete{}}}
	g.send <- &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Goodbye{Goodbye: &agentv1.Goodbye{Reason: "test"}}}
	g.attempt(ctx, t, "token")
	select {
	case id := <-welcomed:
		if id == "" {
			t.Error("the agent id is missing")
		}
	case <-ctx.Done():
		t.Error("Welcomed was not called")
	}
	if got := r.engine.received(); len(got) != 0 {
		t.Errorf("the engine received %v", got)
	}
}

// resumed starts a client with a running engine and returns the engine.
func resumed(t *testing.T, address, token string, agent fleet.AgentID, recovered ...engine.Held) *memoryEngine {
	t.Helper()
	return resumedWith(t, address, token, agent, nil, recovered...)
}

// resumedWith is resumed with deferred states.
func resumedWith(t *testing.T, address, token string, agent fleet.AgentID, deferred []engine.Desired, recovered ...engine.Held) *memoryEngine {
	t.Helper()
	metrics, err := link.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	e := &memoryEngine{changed: make(chan struct{}, 1)}
	c, err := link.New(link.Config{
		Address: address, Tokens: link.TokenFile(write(t, "token", token)),
		Hello: func(context.Context) wire.Hello { return wire.Hello{AgentVersion: "test", Replica: "r-0"} },
		Welcomed: func(_ context.Context, w wire.Welcome) (link.Engine, []engine.Held, error) {
			if w.AgentID != agent {
				t.Errorf("the server names agent %s, want %s", w.AgentID, agent)
			}
			return e, nil, nil
		},
		Log: slog.New(slog.DiscardHandler), Metrics: metrics,
	})
	if err != nil {
		t.Fatal(err)
	}
	e.reporter = c
	c.Resume(agent, e, recovered, deferred)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return e
}

// Neither the inventory nor the server has a bundle for a tombstone or a detached target. The server has to send the state
// again nevertheless, so that the agent completes it.
func TestTombstoneIsSentAgainAfterARestart(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*gatewaytest.Memory, fleet.TargetID) fleet.Target{
		"a tombstone": func(m *gatewaytest.Memory, id fleet.TargetID) fleet.Target {
			return m.Desire(id, nil, func(d *fleet.Desired) { d.Tombstone, d.Digest = true, "" })
		},
		"a detachment": (*gatewaytest.Memory).Detach,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := gatewaytest.NewMemory()
			agent, token := m.Enroll("edge-1")
			ends := end(m, m.Deploy(agent, "ends", configMaps(t, 1, 0)).ID)
			s := serve(t, m, gatewaytest.Options{})
			e := resumed(t, "grpc://"+s.Addr(), token, agent.ID,
				engine.Held{Target: ends.ID, Version: ends.Desired.Version})
			e.awaitCall(testContext(t), t, "pending 0")
			if got := e.received(); len(got) != 1 || got[0].Target != ends.ID {
				t.Errorf("the engine received %v, want the last state of the target", got)
			}
		})
	}
}

// covers: D4, C9
func TestRecoveredStatesAreNotSentAgain(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	same, changed := m.Deploy(agent, "same", configMaps(t, 1, 0)), m.Deploy(agent, "changed", configMaps(t, 2, 0))
	old := changed.Desired
	changed = m.Desire(changed.ID, configMaps(t, 3, 0), func(*fleet.Desired) {})
	lost := m.Deploy(agent, "lost", configMaps(t, 4, 0))
	s := serve(t, m, gatewaytest.Options{})
	e := resumed(t, "grpc://"+s.Addr(), token, agent.ID,
		engine.Held{Target: same.ID, Version: same.Desired.Version, Digest: same.Desired.Digest, AtHand: true},
		engine.Held{Target: changed.ID, Version: old.Version, Digest: old.Digest, AtHand: true},
		engine.Held{Target: lost.ID, Version: lost.Desired.Version, Digest: lost.Desired.Digest},
	)
	calls := e.awaitCall(testContext(t), t, "pending 0")
	if calls[0] != "pending 1" {
		t.Errorf("the calls are %q, want prunes to wait for the snapshot", calls)
	}
	var got []fleet.TargetID
	for _, d := range e.received() {
		got = append(got, d.Target)
	}
	slices.Sort(got)
	want := []fleet.TargetID{changed.ID, lost.ID}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the engine received %v, want the changed and the missing states: %v", got, want)
	}
	if ahead := m.Ahead(); len(ahead) != 0 {
		t.Errorf("the server reports the agent as ahead for %v", ahead)
	}
}

// covers: C8
func TestRefusedIsCalledWhenNoTokenIsAccepted(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	_, token := m.Enroll("edge-1")
	s := serve(t, m, gatewaytest.Options{})
	refused, welcomed := make(chan struct{}, 8), make(chan wire.Welcome, 8)
	start(t, "grpc://"+s.Addr(), token, func(c *link.Config) {
		c.Refused = func() { refused <- struct{}{} }
		engineOf := c.Welcomed
		c.Welcomed = func(ctx context.Context, w wire.Welcome) (link.Engine, []engine.Held, error) {
			welcomed <- w
			return engineOf(ctx, w)
		}
	})
	ctx := testContext(t)
	if err := m.AwaitOpen(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if w := <-welcomed; w.AgentName != "edge-1" {
		t.Errorf("welcomed as %+v", w)
	}
	select {
	case <-refused:
		t.Error("Refused was called while the agent is connected")
	default:
	}
	m.Revoke(token)
	select {
	case <-refused:
	case <-ctx.Done():
		t.Fatal("Refused was not called")
	}
}
