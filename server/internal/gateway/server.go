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

// NewServer returns a gRPC server for agents with the gateway registered. It does not serve tunnels.
func (g *Gateway) NewServer() *grpc.Server {
	srv := grpc.NewServer(
		grpc.MaxRecvMsgSize(wire.MaxFrame),
		grpc.MaxSendMsgSize(wire.MaxFrame),
		grpc.MaxConcurrentStreams(256),
		// Every connection has a buffer and a header table, and agents send little: read what does not fit in
		// several steps, and send headers uncompressed, once per call.
		grpc.ReadBufferSize(512), grpc.HeaderTableSize(0), grpc.WriteBufferSize(16<<10),
		// Windows of a fixed size need no pings to measure the bandwidth, and limit what waits to be read.
		grpc.StaticStreamWindowSize(64<<10), grpc.StaticConnWindowSize(128<<10),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			// Heartbeats count as activity, so the server pings only an agent that sends none.
			Time:    max(g.cfg.Lease*2/3, time.Second),
			Timeout: max(g.cfg.Lease/3, time.Second),
			// A connection without a stream belongs to an agent that is gone, or to no agent.
			MaxConnectionIdle: g.cfg.MaxIdle,
			// Sessions end with a Goodbye before this. It catches connections without a session.
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

// caller is the authenticated agent of a stream.
type caller struct {
	agent             fleet.Agent
	tenant            fleet.Tenant
	token             string // in memory only, to check it again
	tokenID           fleet.TokenID
	credentialVersion int64 // the value of Gateway.credentialVersion when the token was checked
}

type callerKey struct{}

type authenticated struct {
	grpc.ServerStream
	ctx context.Context
}

func (a *authenticated) Context() context.Context { return a.ctx }

// authenticate rejects streams without a valid token. It keeps little on the stack while the stream is open: see
// [Gateway.Connect].
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
	c, err := g.identify(ctx, bearer(ctx))
	if err != nil {
		return nil, err
	}
	return &authenticated{ServerStream: stream, ctx: context.WithValue(ctx, callerKey{}, &c)}, nil
}

// identify returns the caller that a token belongs to. Its error is a gRPC status that does not say why a token
// is invalid.
func (g *Gateway) identify(ctx context.Context, token string) (caller, error) {
	if token == "" {
		return caller{}, status.Error(codes.Unauthenticated, auth.ErrUnauthenticated.Error())
	}
	release, err := g.tokenFailures.acquire(ctx, g.slots.lookups, token)
	if err != nil {
		return caller{}, err
	}
	defer release()
	c, err := g.lookup(ctx, token)
	switch {
	case err == nil:
		g.tokenFailures.addValid(token)
	case status.Code(err) == codes.Unauthenticated:
		// Log only within the limit, so that a client with invalid tokens cannot fill the log.
		if address := remoteAddr(ctx); g.tokenFailures.addInvalid(address, token) {
			g.log.Info("rejected an agent token", obs.KeyAddress, address)
		}
	}
	return c, err
}

// lookup returns the caller that a token belongs to. Its callers limit the concurrent lookups.
func (g *Gateway) lookup(ctx context.Context, token string) (caller, error) {
	credentialVersion := g.credentialVersion.Load()
	agent, tenant, found, err := g.control.AuthenticateAgentToken(ctx, token)
	switch {
	case errors.Is(err, auth.ErrUnauthenticated):
		return caller{}, status.Error(codes.Unauthenticated, auth.ErrUnauthenticated.Error())
	case err != nil:
		g.log.Warn("authenticating an agent failed", obs.Err(err))
		return caller{}, status.Error(codes.Unavailable, "the server cannot check tokens now")
	}
	return caller{agent: agent, tenant: tenant, token: token, tokenID: found.ID, credentialVersion: credentialVersion}, nil
}

// acquireControl waits for a slot to call control.
func (g *Gateway) acquireControl(ctx context.Context) (release func(), err error) {
	return acquire(ctx, g.slots.control)
}

// acquire waits for a slot, first come first served.
func acquire(ctx context.Context, slots chan struct{}) (release func(), err error) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a free slot: %w", ctx.Err())
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

// callerOf never returns nil. Every stream that authenticate admits has a caller.
func callerOf(ctx context.Context) *caller {
	if c, ok := ctx.Value(callerKey{}).(*caller); ok {
		return c
	}
	return &caller{}
}
