package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// TunnelStream is a stream that can carry one connection into the cluster of an agent.
type TunnelStream = grpc.BidiStreamingServer[agentv1.TunnelRequest, agentv1.TunnelResponse]

// Tunnels uses the streams that agents open.
type Tunnels interface {
	// Serve uses a stream of an agent until it is not needed any more. The context of the stream ends when the token of the
	// agent is revoked.
	Serve(agent fleet.Agent, stream TunnelStream) error
}

// NewTunnelServer returns a gRPC server for the tunnels of agents. Tunnels have a connection of their own: its windows
// grow with the transfer, and a transfer does not delay desired states.
func (g *Gateway) NewTunnelServer(t Tunnels) *grpc.Server {
	srv := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxTunnelFrame), grpc.MaxSendMsgSize(maxTunnelFrame),
		grpc.MaxConcurrentStreams(1000),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: 20 * time.Second, Timeout: 10 * time.Second,
			MaxConnectionIdle: g.cfg.MaxIdle,
			// A watch or a session may take hours: the age ends only new streams on the connection.
			MaxConnectionAge: g.cfg.MaxAge, MaxConnectionAgeGrace: 24 * time.Hour,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.ChainStreamInterceptor(g.authenticate),
	)
	agentv1.RegisterTunnelServiceServer(srv, &tunnelService{gateway: g, to: t})
	return srv
}

// maxTunnelFrame is far above the largest valid frame.
const maxTunnelFrame = 128 << 10

// OpenTunnels asks an agent for n tunnels. It reports false if no replica of the agent that offers tunnels is connected to
// this server.
func (g *Gateway) OpenTunnels(agent fleet.AgentID, n int) bool {
	var chosen *session
	g.sessions.forEachOf(agent, func(s *session) {
		// The leader has more to do.
		if s.tunnel && (chosen == nil || s.conn.Standby && !chosen.conn.Standby) {
			chosen = s
		}
	})
	if chosen == nil {
		return false
	}
	chosen.schedule(func(w *pendingWork) { w.tunnels += n })
	return true
}

type tunnelService struct {
	agentv1.UnimplementedTunnelServiceServer
	gateway *Gateway
	to      Tunnels
}

// Tunnel implements agentv1.TunnelServiceServer.
func (s *tunnelService) Tunnel(stream TunnelStream) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	t := &tunnelOf{gateway: s.gateway, caller: callerOf(ctx), cancel: cancel}
	if err := s.gateway.limiters.get(t.agent.ID).tunnel(); err != nil {
		return err
	}
	s.gateway.tunnels.add(t)
	defer s.gateway.tunnels.remove(t)
	if t.credentialVersion != s.gateway.credentialVersion.Load() { // a change after this comparison finds the tunnel
		s.gateway.rechecks.add(t)
	}
	err := s.to.Serve(t.agent, tunnelStream{TunnelStream: stream, ctx: ctx})
	if cause := context.Cause(ctx); cause != nil && stream.Context().Err() == nil {
		return cause
	}
	return err
}

// tunnelStream is a stream with another context.
type tunnelStream struct {
	TunnelStream
	ctx context.Context
}

func (s tunnelStream) Context() context.Context { return s.ctx }

// tunnelOf is one tunnel of an agent.
type tunnelOf struct {
	gateway *Gateway
	*caller
	cancel context.CancelCauseFunc
}

func (t *tunnelOf) log() *slog.Logger {
	return t.gateway.log.With(obs.KeyTenant, t.tenant.Name, obs.KeyAgent, t.agent.Name)
}

func (t *tunnelOf) recheck(ctx context.Context) error {
	_, err := t.gateway.lookup(ctx, t.token)
	if status.Code(err) == codes.Unauthenticated {
		t.cancel(errRevoked)
		return nil
	}
	return err
}

// tunnels are the open tunnels of agents. It is safe for concurrent use.
type tunnels struct {
	rechecks *rechecks

	mu     sync.Mutex
	agents map[fleet.AgentID]map[*tunnelOf]struct{}
}

func newTunnels(r *rechecks) *tunnels {
	return &tunnels{rechecks: r, agents: map[fleet.AgentID]map[*tunnelOf]struct{}{}}
}

func (t *tunnels) add(one *tunnelOf) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.agents[one.agent.ID] == nil {
		t.agents[one.agent.ID] = map[*tunnelOf]struct{}{}
	}
	t.agents[one.agent.ID][one] = struct{}{}
}

func (t *tunnels) remove(one *tunnelOf) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(t.agents[one.agent.ID], one); len(t.agents[one.agent.ID]) == 0 {
		delete(t.agents, one.agent.ID)
	}
}

// recheck checks the tokens of the tunnels of an agent again.
func (t *tunnels) recheck(agent fleet.AgentID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for one := range t.agents[agent] {
		t.rechecks.add(one)
	}
}

func (t *tunnels) recheckAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, of := range t.agents {
		for one := range of {
			t.rechecks.add(one)
		}
	}
}
