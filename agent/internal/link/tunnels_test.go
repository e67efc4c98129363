package link_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// repeat sends back what it receives.
func repeat(conn net.Conn, c wire.TunnelCaller) {
	if c.User == "kedge:test" {
		_, _ = io.Copy(conn, conn)
	}
}

// covers: P1 (transports)
func TestTunnelsOverEveryTransport(t *testing.T) {
	t.Parallel()
	for scheme, tls := range map[string]bool{"grpc": false, "grpcs": true, "ws": false, "wss": true} {
		for _, standby := range []bool{false, true} {
			name := scheme
			if standby {
				name += " standby"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				srv, agent, _ := connectWithTunnel(t, scheme, tls, standby)
				conn, err := srv.OpenTunnel(testContext(t), agent.ID)
				if err != nil {
					t.Fatal(err)
				}
				sent := bytes.Repeat([]byte("0123456789abcdef"), 3<<20/16) // more than the window
				go func() {
					_, _ = conn.Write(sent)
					_ = conn.(interface{ CloseWrite() error }).CloseWrite()
				}()
				if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, sent) {
					t.Errorf("%v: got %d of %d bytes", err, len(got), len(sent))
				}
				_ = conn.Close()
			})
		}
	}
}

func connectWithTunnel(t *testing.T, scheme string, tls, standby bool) (*gatewaytest.Server, fleet.Agent, func()) {
	t.Helper()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	var o gatewaytest.Options
	if tls {
		o.DataDir = t.TempDir()
	}
	srv := serve(t, m, o)
	r := start(t, scheme+"://"+srv.Addr(), token, func(c *link.Config) {
		c.Tunnels, c.Standby = link.NewTunnels(repeat), standby
		if tls {
			c.CAFile = write(t, "ca.pem", string(srv.CAPEM()))
		}
	})
	<-r.welcomed
	return srv, agent, func() { m.Revoke(token) }
}

// covers: P2 (a revoked token of an agent)
func TestRevokedAgentLosesItsTunnels(t *testing.T) {
	t.Parallel()
	srv, agent, revoke := connectWithTunnel(t, "grpc", false, false)
	conn, err := srv.OpenTunnel(testContext(t), agent.ID)
	if err != nil {
		t.Fatal(err)
	}
	revoke()
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	_ = conn.Close()
}

func TestAgentWithoutTunnelsGetsNoRequests(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	srv := serve(t, m, gatewaytest.Options{})
	r := start(t, "grpc://"+srv.Addr(), token, nil)
	<-r.welcomed
	if _, err := srv.OpenTunnel(testContext(t), agent.ID); err == nil {
		t.Error("an agent without tunnels was asked for one")
	}
}
