package link_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// clusterWith simulates a cluster whose API versions the test can change.
func clusterWith(apis ...string) (set func(apis ...string), edit func(*link.Config)) {
	var now atomic.Pointer[fleet.Capabilities]
	set = func(apis ...string) { now.Store(&fleet.Capabilities{KubeVersion: "v1.36.3", APIVersions: apis}) }
	set(apis...)
	return set, func(c *link.Config) {
		c.Capabilities = func() fleet.Capabilities { return *now.Load() }
		c.Hello = func(context.Context) wire.Hello {
			return wire.Hello{AgentVersion: "test", Replica: "replica-0", Capabilities: *now.Load()}
		}
	}
}

// covers: G8
func TestChangedCapabilitiesAreSentOnTheSameConnection(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	s := serve(t, m, gatewaytest.Options{})
	set, edit := clusterWith("v1")
	r := start(t, "grpc://"+s.Addr(), token, edit)
	ctx := testContext(t)
	for _, apis := range [][]string{{"v1"}, {"example.com/v1", "v1"}, {"v1"}} {
		set(apis...)
		r.CapabilitiesChanged()
		if err := m.AwaitCapable(ctx, agent, fleet.Capabilities{KubeVersion: "v1.36.3", APIVersions: apis}); err != nil {
			t.Fatalf("the server did not receive %v: %v", apis, err)
		}
	}
	if n := m.Counts().Connected; n != 1 {
		t.Errorf("%d connections were made, want one", n)
	}
}

// An older server ends the stream when it receives Capabilities that it did not request. Unchanged capabilities are not sent
// to any server.
//
// covers: G8
func TestCapabilitiesAreSentOnlyWhenUseful(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		take   bool
		change bool
		want   bool
	}{
		{"an older server", false, true, false},
		{"nothing has changed", true, false, false},
		{"they have changed", true, true, true},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			g, address := newTokenServer(t, "token")
			g.acceptsCapabilities = c.take
			set, edit := clusterWith("v1")
			r := start(t, address, "token", edit)
			ctx := testContext(t)
			frame(ctx, t, g, (*agentv1.ConnectRequest).GetHello)
			if c.change {
				set("example.com/v1", "v1")
			}
			r.CapabilitiesChanged()
			r.Status(synced()) // capabilities are sent before statuses
			sent := false
			frame(ctx, t, g, func(f *agentv1.ConnectRequest) *agentv1.Status {
				sent = sent || f.GetCapabilities() != nil
				return f.GetStatus()
			})
			if sent != c.want {
				t.Errorf("sent = %t, want %t", sent, c.want)
			}
		})
	}
}
