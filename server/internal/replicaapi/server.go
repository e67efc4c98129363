package replicaapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// The metadata of a connection. The agent is named by IDs, and the caller is an Open message.
const (
	agentKey  = "kedge-agent"
	tenantKey = "kedge-tenant"
	callerKey = "kedge-caller-bin"
	// offerKey marks a tunnel of an agent that is for the other server; it has no caller yet.
	offerKey = "kedge-offer"
	// openedKey is in the response as soon as the agent has opened a tunnel.
	openedKey = "kedge-opened"
)

const (
	// maxFrame is far above the largest valid frame.
	maxFrame = 128 << 10
	// maxStreams is above the limit of open requests of a server.
	maxStreams = 10_000
	// maxAge is when a connection gets no more new streams, so that long connections use new certificates too. Streams
	// may take hours.
	maxAge, maxAgeGrace = certLifetime / 2, 7 * 24 * time.Hour
	// A server that vanished without closing its connections is noticed after the sum.
	pingAfter, pingTimeout = 10 * time.Second, 5 * time.Second
)

// Stream carries one connection.
type Stream = grpc.BidiStreamingServer[agentv1.TunnelRequest, agentv1.TunnelResponse]

// Tunnels has the agents that are connected to this server.
type Tunnels interface {
	// ServeForwarded carries a connection of another server to an agent that is connected to this one. It calls opened when
	// the agent has opened a tunnel, and otherwise fails with a gRPC status.
	ServeForwarded(agent fleet.Agent, c wire.TunnelCaller, stream Stream, opened func() error) error
	// ServeOffered uses a tunnel that an agent has opened to another server, and that this one has asked for.
	ServeOffered(agent fleet.Agent, stream Stream) error
}

// Server serves other servers.
type Server struct {
	grpc     *grpc.Server
	listener net.Listener
}

// NewServer returns a server on a listener. Call Run.
func NewServer(l net.Listener, id *Identity, t Tunnels) *Server {
	srv := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(id.serverTLS())),
		grpc.MaxRecvMsgSize(maxFrame), grpc.MaxSendMsgSize(maxFrame), grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout, MaxConnectionAge: maxAge, MaxConnectionAgeGrace: maxAgeGrace}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAfter / 2}),
	)
	agentv1.RegisterTunnelServiceServer(srv, &service{to: t})
	return &Server{grpc: srv, listener: l}
}

// Run serves until ctx ends. Then it ends all connections.
func (s *Server) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.grpc.Stop)()
	if err := s.grpc.Serve(s.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving other servers: %w", err)
	}
	return nil
}

type service struct {
	agentv1.UnimplementedTunnelServiceServer
	to Tunnels
}

// Tunnel implements agentv1.TunnelServiceServer.
func (s *service) Tunnel(stream Stream) error {
	if agent, ok := parseOffer(stream.Context()); ok {
		return s.to.ServeOffered(agent, stream)
	}
	agent, caller, err := parseMetadata(stream.Context())
	if err != nil {
		return err
	}
	return s.to.ServeForwarded(agent, caller, stream, func() error { return stream.SendHeader(metadata.Pairs(openedKey, "true")) })
}

// parseOffer returns the agent of a tunnel; false for a connection of a caller.
func parseOffer(ctx context.Context) (fleet.Agent, bool) {
	md, _ := metadata.FromIncomingContext(ctx)
	agent := agentOf(md)
	return agent, len(md.Get(offerKey)) > 0 && agent.ID != "" && agent.TenantID != ""
}

func one(md metadata.MD, key string) string {
	if values := md.Get(key); len(values) == 1 {
		return values[0]
	}
	return ""
}

func agentOf(md metadata.MD) fleet.Agent {
	agent := fleet.Agent{ID: fleet.AgentID(one(md, agentKey)), TenantID: fleet.TenantID(one(md, tenantKey))}
	agent.Name = string(agent.ID) // for logs only
	return agent
}

func parseMetadata(ctx context.Context) (fleet.Agent, wire.TunnelCaller, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	agent := agentOf(md)
	var open agentv1.Open
	if err := proto.Unmarshal([]byte(one(md, callerKey)), &open); err != nil || agent.ID == "" || agent.TenantID == "" {
		return fleet.Agent{}, wire.TunnelCaller{}, status.Error(codes.InvalidArgument, "the metadata of a tunnel must contain an agent and a caller")
	}
	caller, err := wire.ParseTunnelCaller(&open)
	if err != nil {
		return fleet.Agent{}, wire.TunnelCaller{}, status.Error(codes.InvalidArgument, err.Error())
	}
	return agent, caller, nil
}
