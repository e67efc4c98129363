package link_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// An agent that comes back says once what it holds, and gets what it has missed in answer: it asks for
// nothing, and is asked nothing. On a line with a long way every question costs as long as a bundle.
func TestWhatWasMissedComesInOneRoundTrip(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, reason    string
		targets, noise  int
		held, downloads bool // are needed beside Hello
	}{
		{"little", "it fits into the messages that are sent anyway", 2, 1000, false, false},
		{"a bundle that is not small", "it comes along, unlike when it is news", 1, 90_000, false, false},
		{"a large bundle", "it would hold up everything behind it", 1, 200_000, false, true},
		{"many targets", "the list is not sent without need", wire.HeldInHello + 1, 10, true, false},
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
			line := newCable(t, srv.Addr())
			r := start(t, "grpc://"+line.addr(), token, nil)
			for _, x := range targets {
				if err := m.AwaitObserved(within(t), x.ID, fleet.SyncSynced); err != nil {
					t.Fatal(err)
				}
			}
			line.cut()
			if err := m.AwaitOpen(within(t), 0); err != nil {
				t.Fatal(err)
			}
			before := counter(t, r.metrics, "kedge_agent_frames_total", "held")
			missed := m.Desire(targets[0].ID, configMaps(t, 1, tt.noise), func(*fleet.Desired) {})
			line.mend()
			err := m.AwaitTarget(within(t), missed.ID, func(x fleet.Target) bool { return x.Observed.Version == missed.Desired.Version })
			if err != nil {
				t.Fatal(err)
			}
			asked := counter(t, r.metrics, "kedge_agent_frames_total", "held") > before
			fetched := counter(t, r.metrics, "kedge_agent_bundle_bytes_total") > 0
			if asked != tt.held || fetched != tt.downloads {
				t.Errorf("%s: listed again %t, fetched %t; want %t and %t", tt.reason, asked, fetched, tt.held, tt.downloads)
			}
		})
	}
}
