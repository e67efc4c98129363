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
func TestFleetReconnectsSpreadOutAndWithoutTransfer(t *testing.T) {
	t.Parallel()
	const agents = 200
	m := gatewaytest.NewMemory()
	first, second := serve(t, m, gatewaytest.Options{}), serve(t, m, gatewaytest.Options{})
	proxy := newTCPProxy(t, first.Addr())
	set := configMaps(t, 2, 10)
	var targets []fleet.Target
	var clients []*testClient
	for i := range agents {
		agent, token := m.Enroll(fmt.Sprintf("edge-%d", i))
		targets = append(targets, m.Deploy(agent, "shop", set))
		clients = append(clients, start(t, "grpc://"+proxy.addr(), token, nil))
	}
	for _, target := range targets {
		if err := m.AwaitObserved(testContext(t), target.ID, fleet.SyncSynced); err != nil {
			t.Fatal(err)
		}
	}
	before := m.Counts()
	waited := waits(t, clients)
	proxy.setServer(second.Addr()) // the next server runs already, so that one attempt is enough
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := m.AwaitOpen(testContext(t), agents); err != nil {
		t.Fatalf("not all agents reconnected: %v", err)
	}
	assertSpread(t, clients, waited)

	after := m.Counts()
	if n := after.Statuses - before.Statuses; n != 0 {
		t.Errorf("%d statuses were sent again although the server has them", n)
	}
	if n := counter(t, second.Metrics, "kedge_gateway_desired_sent_total"); n != 0 {
		t.Errorf("%v desired states were sent again although nothing has changed", n)
	}
	target := m.Desire(targets[7].ID, configMaps(t, 1, 10), func(*fleet.Desired) {})
	if err := m.AwaitObserved(testContext(t), target.ID, fleet.SyncSynced); err != nil {
		t.Errorf("a change after the restart did not arrive: %v", err)
	}
	// The counter is incremented after the frame is sent, so that the status may arrive first.
	testkit.Eventually(t, time.Minute, func(context.Context) error {
		if n := counter(t, second.Metrics, "kedge_gateway_desired_sent_total"); n != 1 {
			return fmt.Errorf("%v desired states were sent for one change", n)
		}
		return nil
	})
}

// assertSpread checks that the agents chose different delays. It does not check when they reconnected: a slow machine
// spreads agents that reconnect at the same time.
func assertSpread(t *testing.T, clients []*testClient, before []float64) {
	t.Helper()
	chosen := waits(t, clients)
	for i := range chosen {
		chosen[i] -= before[i]
	}
	slices.Sort(chosen)
	// The window is one second: the delays of 80 % of the agents differ by 0.8 s on average.
	if early, late := chosen[len(chosen)/10], chosen[len(chosen)*9/10]; late-early < 0.5 {
		t.Errorf("80 %% of the agents reconnect within %.3f s", late-early)
	}
}

// waits returns the sum of the delays of each agent.
func waits(t *testing.T, clients []*testClient) []float64 {
	t.Helper()
	var out []float64
	for _, r := range clients {
		out = append(out, counter(t, r.metrics, "kedge_agent_reconnect_wait_seconds_total"))
	}
	return out
}

// A status that the server has not confirmed when a connection is lost is sent again with all objects.
func TestUnconfirmedStatusesAreSentAgain(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	target := m.Deploy(agent, "shop", configMaps(t, 2, 10))
	srv := serve(t, m, gatewaytest.Options{})
	proxy := newTCPProxy(t, srv.Addr())
	r := start(t, "grpc://"+proxy.addr(), token, nil)
	if err := m.AwaitObserved(testContext(t), target.ID, fleet.SyncSynced); err != nil {
		t.Fatal(err)
	}
	proxy.disconnect()
	if err := m.AwaitOpen(testContext(t), 0); err != nil {
		t.Fatal(err)
	}
	r.Status(engine.Status{
		Target: target.ID,
		Observed: fleet.Observed{
			Version: target.Desired.Version, Digest: target.Desired.Digest, Sync: fleet.SyncFailed, Health: fleet.HealthFailed, AsOf: time.Now(),
		},
		Objects: []fleet.ObjectStatus{{ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: "left"}, Sync: fleet.SyncFailed, Health: fleet.HealthFailed}},
	})
	proxy.reconnect()
	if err := m.AwaitObserved(testContext(t), target.ID, fleet.SyncFailed); err != nil {
		t.Fatalf("the status was not sent after the reconnect: %v", err)
	}
	if objects := m.Objects(target.ID); len(objects) != 1 || objects[0].Name != "left" {
		t.Errorf("objects = %v, want the complete list", objects)
	}
	if got := r.engine.received(); len(got) != 1 {
		t.Errorf("the engine received %d states, want one: nothing has changed", len(got))
	}
}

// covers: C11, C7
func TestReplacedTokenFileIsUsedWithoutARestart(t *testing.T) {
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
	if err := m.AwaitOpen(testContext(t), 1); err != nil {
		t.Fatal(err)
	}
	m.Revoke(old)
	problems.await(t, testContext(t))
	assertProblem(t, r, link.KindToken, "the server refused the token in file "+tokenFile)
	_, fresh := m.Enroll("edge-1")
	if err := os.WriteFile(tokenFile, []byte(fresh), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.AwaitOpen(testContext(t), 1); err != nil {
		t.Errorf("the new token was not used: %v", err)
	}
}

func TestDeletedTargetIsForgotten(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	target := m.Deploy(agent, "shop", configMaps(t, 1, 1))
	first := serve(t, m, gatewaytest.Options{})
	r := start(t, "grpc://"+first.Addr(), token, nil)
	if err := m.AwaitObserved(testContext(t), target.ID, fleet.SyncSynced); err != nil {
		t.Fatal(err)
	}
	m.Desire(target.ID, nil, func(*fleet.Desired) {})
	if err := m.AwaitTarget(testContext(t), target.ID, func(t fleet.Target) bool { return t.ID == "" }); err != nil {
		t.Fatalf("the tombstone was never acknowledged: %v", err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := serve(t, m, gatewaytest.Options{Address: first.Addr()})
	if err := m.AwaitOpen(testContext(t), 1); err != nil {
		t.Fatal(err)
	}
	next := m.Deploy(agent, "next", configMaps(t, 1, 1))
	if err := m.AwaitObserved(testContext(t), next.ID, fleet.SyncSynced); err != nil {
		t.Fatal(err)
	}
	if n := counter(t, second.Metrics, "kedge_gateway_frames_total", "target_states"); n != 0 {
		t.Error("the agent still lists the deleted target")
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
