package link_test

import (
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// covers: C2, C3
func TestDeliversOverEveryTransport(t *testing.T) {
	t.Parallel()
	tests := []struct {
		scheme string
		tls    bool
		noise  int
		reason string
	}{
		{scheme: "grpc", reason: "plain gRPC on loopback"},
		{scheme: "grpcs", tls: true, reason: "gRPC with TLS and a private CA"},
		{scheme: "ws", reason: "gRPC inside a WebSocket"},
		{scheme: "wss", tls: true, reason: "the same with TLS"},
		{scheme: "grpcs", tls: true, noise: 40_000, reason: "a bundle that is too large to be inlined is fetched"},
		{scheme: "wss", tls: true, noise: 400_000, reason: "a fetched bundle inside a WebSocket"},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			m := gatewaytest.NewMemory()
			agent, token := m.Enroll("edge-1")
			set := configMaps(t, 3, tt.noise)
			target := m.Deploy(agent, "shop", set)
			var o gatewaytest.Options
			if tt.tls {
				o.DataDir = t.TempDir()
			}
			srv := serve(t, m, o)
			r := start(t, tt.scheme+"://"+srv.Addr(), token, func(c *link.Config) {
				if tt.tls {
					c.CAFile = write(t, "ca.pem", string(srv.CAPEM()))
				}
			})

			if err := m.AwaitObserved(testContext(t), target.ID, fleet.SyncSynced); err != nil {
				t.Fatalf("the status was not reported: %v; the client reports: %v", err, r.Ready(t.Context()))
			}
			got := r.engine.received()
			if len(got) != 1 || got[0].Objects.Digest() != set.Digest() || got[0].Deployment != "shop" || got[0].Tenant != "default" {
				t.Errorf("the engine received %+v, want exactly the deployed set", got)
			}
			if objects := m.Objects(target.ID); len(objects) != 3 {
				t.Errorf("%d objects reported, want 3", len(objects))
			}
			if err := r.Ready(t.Context()); err != nil {
				t.Errorf("Ready() = %v while connected", err)
			}
			welcome := <-r.welcomed
			if welcome.AgentID != agent.ID || welcome.AgentName != "edge-1" || welcome.Scope != fleet.ScopeCluster {
				t.Errorf("welcomed as %+v, want the agent of the token", welcome)
			}
			open := m.Connections()
			if len(open) != 1 || open[0].Replica != "replica-0" || open[0].KubeVersion != "v1.36.3" || open[0].RemoteAddr == "" {
				t.Errorf("connections = %+v, want the data of Hello", open)
			}
		})
	}
}
