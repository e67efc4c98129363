package gateway_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/gatewaytest"
	"github.com/kedge-dev/kedge/server/internal/gateway"
)

// covers: G8 (the server asks for the capabilities of a cluster once, and again when they change)
func TestServerAsksForUnknownCapabilities(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	srv := serve(t, m, gatewaytest.Options{})
	if p, w := connect(t, srv, token, nil); w.SendCapabilities {
		t.Error("the server asks an agent that has no capabilities")
	} else {
		p.cancel()
	}
	for _, version := range []string{"v1.36.3", "v1.37.0"} {
		c := fleet.Capabilities{KubeVersion: version, APIVersions: []string{"apps/v1", "v1"}}
		tell := func(h *wire.Hello) { h.Capabilities = c }
		p, w := connect(t, srv, token, tell)
		if !w.SendCapabilities {
			t.Fatalf("the server does not ask for %s", version)
		}
		p.send(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Capabilities{Capabilities: wire.CapabilitiesProto(c)}})
		if err := m.AwaitCapable(p.ctx, agent, c); err != nil {
			t.Fatal(err)
		}
		p.cancel()
		if p, w := connect(t, srv, token, tell); w.SendCapabilities {
			t.Error("the server asks for capabilities that it knows")
		} else {
			p.cancel()
		}
	}
}

// Each Capabilities frame may render all charts of an agent again. So the rate is limited, and only the leader
// may send them.
func TestChangedCapabilitiesAreRecordedWithinTheRateLimit(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	srv := serve(t, m, gatewaytest.Options{Limits: gateway.Limits{Capabilities: gateway.Rate{PerSecond: 1e-6, Burst: 2}}})
	first := fleet.Capabilities{KubeVersion: "v1.36.3", APIVersions: []string{"apps/v1", "v1"}}
	other := fleet.Capabilities{KubeVersion: "v1.36.3", APIVersions: []string{"apps/v1", "example.com/v1", "v1"}}
	frame := func(c fleet.Capabilities) *agentv1.ConnectRequest {
		return &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Capabilities{Capabilities: wire.CapabilitiesProto(c)}}
	}
	tell := func(h *wire.Hello) { h.Capabilities = first }
	waits, w := connect(t, srv, token, func(h *wire.Hello) { tell(h); standby("r-1")(h) })
	if w.SendCapabilities || w.AcceptCapabilities {
		t.Error("the server asks a standby replica")
	}
	p, w := connect(t, srv, token, tell)
	if !w.SendCapabilities || !w.AcceptCapabilities {
		t.Errorf("the leader receives %+v", w)
	}
	for _, c := range []fleet.Capabilities{first, other} {
		p.send(frame(c))
		if err := m.AwaitCapable(p.ctx, agent, c); err != nil {
			t.Fatal(err)
		}
	}
	p.send(frame(first))
	if err := p.ended(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("too many frames end the stream with %v", err)
	}
	waits.send(frame(first))
	if err := waits.ended(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("Capabilities of a standby replica end the stream with %v", err)
	}
	if err := m.AwaitCapable(within(t), agent, other); err != nil {
		t.Errorf("rejected capabilities were recorded: %v", err)
	}
}
