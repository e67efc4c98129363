package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/auth"
)

// NewServer makes a gRPC server for agents with the gateway registered.
func (g *Gateway) NewServer() *grpc.Server {
	srv := grpc.NewServer(
		grpc.MaxRecvMsgSize(wire.MaxFrame),
		grpc.MaxSendMsgSize(wire.MaxFrame),
		grpc.MaxConcurrentStreams(256),
		// Every connection keeps a buffer and a table, and agents say little: what does not fit is read
		// as it comes, and headers are sent whole, once per call.
		grpc.ReadBufferSize(512), grpc.HeaderTableSize(0), grpc.WriteBufferSize(16<<10),
		// Windows that stay as they are need no pings to be measured, and bound what waits to be read.
		grpc.StaticStreamWindowSize(64<<10), grpc.StaticConnWindowSize(128<<10),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			// Heartbeats are traffic, so a ping is sent only to an agent that has gone quiet.
			Time:    max(g.cfg.Lease*2/3, time.Second),
			Timeout: max(g.cfg.Lease/3, time.Second),
			// A connection without a stream is an agent that has gone, or nobody's.
			MaxConnectionIdle: g.cfg.MaxIdle,
			// Sessions end themselves with a Goodbye before this; it catches connections without one.
			MaxConnectionAge:      g.cfg.MaxAge * 5 / 4,
			MaxConnectionAgeGrace: time.Minute,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.StatsHandler(g.metrics.statsHandler()),
		grpc.ChainStreamInterceptor(g.authenticate),
	)
	g.Register(srv)
	return srv
}

// caller is who opened a stream.
type caller struct {
	agent   fleet.Agent
	tenant  fleet.Tenant
	token   string // kept in memory only, to ask again whether it is still valid
	tokenID fleet.TokenID
	asked   int64 // see Gateway.credentials
}

type callerKey struct{}

type authenticated struct {
	grpc.ServerStream
	ctx context.Context
}

func (a *authenticated) Context() context.Context { return a.ctx }

// authenticate holds nothing while the stream lives but what it has to: see [Gateway.Connect].
func (g *Gateway) authenticate(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	known, err := g.admit(stream)
	if err != nil {
		return err
	}
	return next(srv, known)
}

//go:noinline
func (g *Gateway) admit(stream grpc.ServerStream) (grpc.ServerStream, error) {
	ctx := stream.Context()
	who, err := g.identify(ctx, bearer(ctx))
	if err != nil {
		return nil, err
	}
	return &authenticated{ServerStream: stream, ctx: context.WithValue(ctx, callerKey{}, &who)}, nil
}

// identify answers with a gRPC status that says nothing about why a token is no good.
func (g *Gateway) identify(ctx context.Context, token string) (caller, error) {
	if token == "" {
		return caller{}, status.Error(codes.Unauthenticated, auth.ErrUnauthenticated.Error())
	}
	release, err := g.failures.admit(ctx, g.checks, token)
	if err != nil {
		return caller{}, err
	}
	defer release()
	who, err := g.lookUp(ctx, token)
	switch {
	case err == nil:
		g.failures.valid(token)
	case status.Code(err) == codes.Unauthenticated:
		// Logged within the limit only: whoever sends wrong tokens must not fill the log.
		if address := remoteAddr(ctx); g.failures.wrong(address, token) {
			g.log.Info("an agent's token was refused", obs.KeyAddress, address)
		}
	}
	return who, err
}

// lookUp finds out whose token it is. The caller bounds how many are looked up at once.
func (g *Gateway) lookUp(ctx context.Context, token string) (caller, error) {
	asked := g.credentials.Load()
	agent, tenant, found, err := g.control.AuthenticateAgentToken(ctx, token)
	switch {
	case errors.Is(err, auth.ErrUnauthenticated):
		return caller{}, status.Error(codes.Unauthenticated, auth.ErrUnauthenticated.Error())
	case err != nil:
		g.log.Warn("authenticating an agent", obs.Err(err))
		return caller{}, status.Error(codes.Unavailable, "the server cannot check tokens now")
	}
	return caller{agent: agent, tenant: tenant, token: token, tokenID: found.ID, asked: asked}, nil
}

// load takes one of the places for asking control.
func (g *Gateway) load(ctx context.Context) (release func(), err error) { return take(ctx, g.loads) }

// take waits for one of the places. Who has waited longest is next.
func take(ctx context.Context, places chan struct{}) (release func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a place: %w", ctx.Err())
	}
}

func bearer(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	for _, value := range md.Get("authorization") {
		if scheme, token, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "bearer") {
			return strings.TrimSpace(token)
		}
	}
	return ""
}

// callerOf never returns nil: without a caller there is no stream.
func callerOf(ctx context.Context) *caller {
	if who, ok := ctx.Value(callerKey{}).(*caller); ok {
		return who
	}
	return &caller{}
}
