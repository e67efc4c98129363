package gatewaytest

import (
	"context"
	"fmt"
	"net"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/tunnel"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/internal/gateway"
)

// tunnels opens every tunnel of an agent at once, for the user kedge:test.
type tunnels struct{ conns chan net.Conn }

// Serve implements gateway.Tunnels.
func (t *tunnels) Serve(_ fleet.Agent, s gateway.TunnelStream) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	caller := wire.TunnelCaller{User: wire.IdentityPrefix + "test"}
	if err := s.Send(&agentv1.TunnelResponse{Frame: &agentv1.TunnelResponse_Open{Open: caller.Proto()}}); err != nil {
		return err
	}
	ctx, abort := context.WithCancel(s.Context())
	defer abort()
	select {
	case t.conns <- tunnel.Server(s, abort, tunnel.Addr("agent")):
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil
}

// OpenTunnel returns a connection through a tunnel of an agent.
func (s *Server) OpenTunnel(ctx context.Context, agent fleet.AgentID) (net.Conn, error) {
	if !s.gateway.OpenTunnels(agent, 1) {
		return nil, fmt.Errorf("agent %s offers no tunnel", agent)
	}
	select {
	case conn := <-s.tunnels.conns:
		return conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
