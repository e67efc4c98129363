package link_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// covers: C9, D5
func TestFleetComesBackWithoutStampedeAndWithoutTransfer(t *testing.T) {
	t.Parallel()
	const agents = 200
	m := gatewaytest.NewMemory()
	first, second := serve(t, m, gatewaytest.Options{}), serve(t, m, gatewaytest.Options{})
	road := newCable(t, first.Addr())
	set := configMaps(t, 2, 10)
	var targets []fleet.Target
	var rigs []*rig
	for i := range agents {
		agent, token := m.Enroll(fmt.Sprintf("edge-%d", i))
		targets = append(targets, m.Deploy(agent, "shop", set))
		rigs = append(rigs, start(t, "grpc://"+road.addr(), token, nil))
	}
	for _, target := range targets {
		if err := m.AwaitObserved(within(t), target.ID, fleet.SyncSynced); err != nil {
			t.Fatal(err)
		}
	}
	before := m.Counts()
	waited := waits(t, rigs)
	road.plug(second.Addr()) // the next server is there already: nobody tries twice
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := m.AwaitOpen(within(t), agents); err != nil {
		t.Fatalf("not all agents came back: %v", err)
	}
	assertSpread(t, rigs, waited)

	after := m.Counts()
	if n := after.Statuses - before.Statuses; n != 0 {
		t.Errorf("%d statuses were sent again, though the server has them", n)
	}
	if n := counter(t, second.Metrics, "kedge_gateway_desired_sent_total"); n != 0 {
		t.Errorf("%v desired states were sent again, though nothing has changed", n)
	}
	target := m.Desire(targets[7].ID, configMaps(t, 1, 10), func(*fleet.Desired) {})
	if err := m.AwaitObserved(within(t), target.ID, fleet.SyncSynced); err != nil {
		t.Errorf("a change after the restart did not arrive: %v", err)
	}
	// It is counted when it was sent, and the answer may be faster.
	testkit.Eventually(t, time.Minute, func(context.Context) error {
		if n := counter(t, second.Metrics, "kedge_gateway_desired_sent_total"); n != 1 {
			return fmt.Errorf("%v desired states were sent for one change", n)
		}
		return nil
	})
}

// assertSpread checks that the agents chose to come back over a while and not in one moment. It looks at what they
// chose, not at when they came: a slow machine spreads agents that all come at once.
func assertSpread(t *testing.T, rigs []*rig, before []float64) {
	t.Helper()
	chosen := waits(t, rigs)
	for i := range chosen {
		chosen[i] -= before[i]
	}
	slices.Sort(chosen)
	// The server asks them to spread over a second: eight tenths of them are 0.8 s apart on average.
	if early, late := chosen[len(chosen)/10], chosen[len(chosen)*9/10]; late-early < 0.5 {
		t.Errorf("eight tenths of the agents chose to come back within %.3f s", late-early)
	}
}

// waits is how long each agent has chosen to wait so far.
func waits(t *testing.T, rigs []*rig) []float64 {
	t.Helper()
	var out []float64
	for _, r := range rigs {
		out = append(out, counter(t, r.metrics, "kedge_agent_reconnect_wait_seconds_total"))
	}
	return out
}

// What was reported and not confirmed when a connection broke is reported again, whole.
func TestStatusesOfABrokenConnectionAreNotLost(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	target := m.Deploy(agent, "shop", configMaps(t, 2, 10))
	srv := serve(t, m, gatewaytest.Options{})
	wire := newCable(t, srv.Addr())
	r := start(t, "grpc://"+wire.addr(), token, nil)
	if err := m.AwaitObserved(within(t), target.ID, fleet.SyncSynced); err != nil {
		t.Fatal(err)
	}
	wire.cut()
	if err := m.AwaitOpen(within(t), 0); err != nil {
		t.Fatal(err)
	}
	r.Status(engine.Status{
		Target: target.ID,
		Observed: fleet.Observed{
			Version: target.Desired.Version, Digest: target.Desired.Digest, Sync: fleet.SyncFailed, Health: fleet.HealthFailed, AsOf: time.Now(),
		},
		Objects: []fleet.ObjectStatus{{ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: "left"}, Sync: fleet.SyncFailed, Health: fleet.HealthFailed}},
	})
	wire.mend()
	if err := m.AwaitObserved(within(t), target.ID, fleet.SyncFailed); err != nil {
		t.Fatalf("what happened while away was never told: %v", err)
	}
	if objects := m.Objects(target.ID); len(objects) != 1 || objects[0].Name != "left" {
		t.Errorf("objects = %v, want the whole list anew", objects)
	}
	if got := r.engine.received(); len(got) != 1 {
		t.Errorf("the engine was told %d times, want once: nothing has changed", len(got))
	}
}

// covers: C11, C7
func TestRotatedTokenIsPickedUpWithoutARestart(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	_, old := m.Enroll("edge-1")
	srv := serve(t, m, gatewaytest.Options{})
	problems := newProblemLog()
	var tokenFile string
	r := start(t, "grpc://"+srv.Addr(), old, func(c *link.Config) {
		tokenFile = write(t, "token", old)
		c.Tokens = link.TokenFile(tokenFile)
		c.Log = slog.New(problems)
	})
	if err := m.AwaitOpen(within(t), 1); err != nil {
		t.Fatal(err)
	}
	m.Revoke(old)
	problems.await(t, within(t))
	assertProblem(t, r, link.KindToken, "the server refused the token in file "+tokenFile)
	_, fresh := m.Enroll("edge-1")
	if err := os.WriteFile(tokenFile, []byte(fresh), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.AwaitOpen(within(t), 1); err != nil {
		t.Errorf("the new token was not taken up: %v", err)
	}
}

func TestDeletedTargetIsForgotten(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	target := m.Deploy(agent, "shop", configMaps(t, 1, 1))
	first := serve(t, m, gatewaytest.Options{})
	r := start(t, "grpc://"+first.Addr(), token, nil)
	if err := m.AwaitObserved(within(t), target.ID, fleet.SyncSynced); err != nil {
		t.Fatal(err)
	}
	m.Desire(target.ID, nil, func(*fleet.Desired) {})
	if err := m.AwaitTarget(within(t), target.ID, func(t fleet.Target) bool { return t.ID == "" }); err != nil {
		t.Fatalf("the tombstone was never acknowledged: %v", err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := serve(t, m, gatewaytest.Options{Address: first.Addr()})
	if err := m.AwaitOpen(within(t), 1); err != nil {
		t.Fatal(err)
	}
	next := m.Deploy(agent, "next", configMaps(t, 1, 1))
	if err := m.AwaitObserved(within(t), next.ID, fleet.SyncSynced); err != nil {
		t.Fatal(err)
	}
	if n := counter(t, second.Metrics, "kedge_gateway_frames_total", "held"); n != 0 {
		t.Error("the agent still counts what was deleted among what it holds")
	}
	if got := r.engine.received(); len(got) != 3 || !got[1].State.Tombstone || got[1].Objects != nil {
		t.Errorf("the engine received %d states, want a bundle, a tombstone without one, and the next", len(got))
	}
}

// counter sums a counter over its labels, or over those with a given value.
func counter(t *testing.T, reg *prometheus.Registry, name string, values ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			matches := len(values) == 0
			for _, label := range metric.GetLabel() {
				matches = matches || slices.Contains(values, label.GetValue())
			}
			if f.GetName() == name && matches {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}
