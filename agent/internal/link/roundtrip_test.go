package link_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// A reconnecting agent lists its states in Hello and receives all missed states in the response, without further requests:
// with a high latency each request takes as long as a bundle.
func TestMissedStatesTakeOneRoundTrip(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, reason     string
		targets, noise   int
		lists, downloads bool // needed in addition to Hello
	}{
		{"little", "it fits into the frames", 2, 1000, false, false},
		{"a bundle that is not small", "missed bundles may be larger to be inlined", 1, 90_000, false, false},
		{"a large bundle", "it would delay the following frames", 1, 200_000, false, true},
		{"many targets", "the list is sent only when the hashes differ", wire.MaxStatesInHello + 1, 10, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := gatewaytest.NewMemory()
			agent, token := m.Enroll("edge-1")
			var targets []fleet.Target
			for range tt.targets {
				targets = append(targets, m.Deploy(agent, "shop", configMaps(t, 1, 10)))
			}
			srv := serve(t, m, gatewaytest.Options{})
			proxy := newTCPProxy(t, srv.Addr())
			r := start(t, "grpc://"+proxy.addr(), token, nil)
			for _, x := range targets {
				if err := m.AwaitObserved(testContext(t), x.ID, fleet.SyncSynced); err != nil {
					t.Fatal(err)
				}
			}
			proxy.disconnect()
			if err := m.AwaitOpen(testContext(t), 0); err != nil {
				t.Fatal(err)
			}
			before := counter(t, r.metrics, "kedge_agent_frames_total", "target_states")
			missed := m.Desire(targets[0].ID, configMaps(t, 1, tt.noise), func(*fleet.Desired) {})
			proxy.reconnect()
			err := m.AwaitTarget(testContext(t), missed.ID, func(x fleet.Target) bool { return x.Observed.Version == missed.Desired.Version })
			if err != nil {
				t.Fatal(err)
			}
			listed := counter(t, r.metrics, "kedge_agent_frames_total", "target_states") > before
			fetched := counter(t, r.metrics, "kedge_agent_bundle_bytes_total") > 0
			if listed != tt.lists || fetched != tt.downloads {
				t.Errorf("%s: listed %t, fetched %t; want %t and %t", tt.reason, listed, fetched, tt.lists, tt.downloads)
			}
		})
	}
}
