package gateway_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/gatewaytest"
	"github.com/kedge-dev/kedge/server/internal/gateway"
)

// limited returns how many requests of a kind were rejected or delayed.
func limited(t *testing.T, s *gatewaytest.Server, what string) float64 {
	t.Helper()
	families, err := s.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			if f.GetName() == "kedge_gateway_limited_total" && metric.GetLabel()[0].GetValue() == what {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// covers: C12
func TestRequestsBeyondTheLimitsAreRejectedAndCounted(t *testing.T) {
	t.Parallel()
	few := gateway.Rate{PerSecond: 0.001, Burst: 3}
	tests := []struct {
		what   string
		limits gateway.Limits
		ask    func(*testing.T, *gatewaytest.Server, string) error
	}{
		{"connects", gateway.Limits{Connects: few}, func(t *testing.T, s *gatewaytest.Server, token string) error {
			for range few.Burst {
				p, _ := connect(t, s, token, nil)
				p.cancel()
			}
			return dial(t, s, token).ended()
		}},
		{"frames", gateway.Limits{Frames: few}, func(t *testing.T, s *gatewaytest.Server, token string) error {
			p, _ := connect(t, s, token, nil)
			for range few.Burst {
				_ = p.stream.Send(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Heartbeat{Heartbeat: &agentv1.Heartbeat{}}})
			}
			return p.ended()
		}},
		{"fetches", gateway.Limits{Fetches: few}, func(t *testing.T, s *gatewaytest.Server, token string) error {
			p, _ := connect(t, s, token, nil)
			for range few.Burst {
				if err := fetch(p, "sha256:none"); status.Code(err) != codes.NotFound {
					return fmt.Errorf("within the limit: %w", err)
				}
			}
			return fetch(p, "sha256:none")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			m := gatewaytest.NewMemory()
			_, token := m.Enroll("edge-1")
			_, other := m.Enroll("edge-2")
			srv := serve(t, m, gatewaytest.Options{Limits: tt.limits})
			if err := tt.ask(t, srv, token); status.Code(err) != codes.ResourceExhausted {
				t.Fatalf("got %v, want ResourceExhausted", err)
			}
			if n := limited(t, srv, tt.what); n < 1 {
				t.Errorf("%v of %s were counted, want at least 1", n, tt.what)
			}
			p, _ := connect(t, srv, other, nil)
			p.snapshot() // other agents are not affected
		})
	}
}

func fetch(p *testAgent, digest string) error {
	stream, err := p.rpc.FetchBundle(p.ctx, &agentv1.FetchBundleRequest{Digest: digest})
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

// covers: C12
func TestStatusesBeyondTheLimitAreDelayedAndNotLost(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	target := m.Deploy(agent, "shop", configMap(t, "v"))
	srv := serve(t, m, gatewaytest.Options{Limits: gateway.Limits{Statuses: gateway.Rate{PerSecond: 100, Burst: 10}}})
	p, _ := connect(t, srv, token, nil)
	p.held(heldOf(target))
	p.snapshot()
	began := time.Now()
	const n = 50
	for i := range n {
		p.status(wire.Status{Target: target.ID, Observed: observed(target, fmt.Sprint(i)), Full: i == 0})
	}
	for p.recv().GetStatusStored().GetCount() != n {
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("%d statuses took %s: they were not delayed", n, took)
	}
	if limited(t, srv, "statuses") == 0 {
		t.Error("no delayed status was counted")
	}
}
