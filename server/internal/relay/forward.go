package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/tunnel"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/internal/gateway"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Peers opens connections to agents at other servers.
type Peers interface {
	// Dial fails with a gRPC status: NotFound if the agent is not connected there, DeadlineExceeded if it opens no tunnel,
	// ResourceExhausted if it has too many, and others if the server does not respond. ctx limits only the opening.
	Dial(ctx context.Context, to fleet.ServerReplica, agent fleet.Agent, c wire.TunnelCaller) (net.Conn, error)
	// Offer gives a server a tunnel of an agent, until ctx ends. The caller calls release at the end.
	Offer(ctx context.Context, to fleet.ServerReplica, agent fleet.Agent) (stream OfferedStream, release func(), err error)
}

// OfferedStream is a tunnel at the server that gets it.
type OfferedStream = grpc.BidiStreamingClient[agentv1.TunnelRequest, agentv1.TunnelResponse]

// dial returns a connection to an agent, in the name of a caller: through a tunnel that the agent has opened to this server,
// or else through the server that the agent is connected to.
func (r *Relay) dial(ctx context.Context, agent fleet.Agent, c wire.TunnelCaller) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, waitForTunnel, errNoTunnel)
	defer cancel()
	o, err := r.pools.open(ctx, agent, c)
	switch {
	case err == nil:
		return o.conn, nil
	case r.peers == nil || !errors.Is(err, errNotConnected):
		return nil, err
	}
	return r.forward(ctx, agent, c)
}

// forward returns a connection through another server. If that server does not have the agent, it looks once more: the agent
// may have connected elsewhere.
func (r *Relay) forward(ctx context.Context, agent fleet.Agent, c wire.TunnelCaller) (net.Conn, error) {
	var failed error
	for _, maxAge := range []time.Duration{locationTTL, locationRetry} {
		servers, err := r.locations.of(ctx, agent.ID, maxAge)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			r.log.Warn("finding the server of an agent failed", obs.KeyAgent, agent.Name, obs.Err(err))
			return nil, &refusal{
				code: http.StatusServiceUnavailable, retry: time.Second,
				message: fmt.Sprintf("agent %q is not connected to this server, which cannot find the others now: try again", agent.Name),
			}
		case len(servers) == 0:
			return nil, errNotConnected
		}
		for _, to := range servers {
			conn, err := r.dialPeer(ctx, to, agent, c)
			if err == nil {
				return conn, nil
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			failed = err
		}
	}
	return nil, failed
}

func (r *Relay) dialPeer(ctx context.Context, to fleet.ServerReplica, agent fleet.Agent, c wire.TunnelCaller) (net.Conn, error) {
	if to.Address == "" {
		return nil, &refusal{code: http.StatusServiceUnavailable, message: fmt.Sprintf(
			"agent %q is connected to another server, which has no address for this one: start all servers with --private-listen", agent.Name)}
	}
	conn, err := r.peers.Dial(ctx, to, agent, c)
	switch status.Code(err) {
	case codes.OK:
		return conn, nil
	case codes.NotFound: // not errNotConnected, which is remembered: it is about to connect elsewhere, or has no tunnel
		return nil, notConnected(agent.Name)
	case codes.DeadlineExceeded:
		return nil, errNoTunnel
	case codes.ResourceExhausted:
		return nil, &tooManyError{status.Convert(err).Message()}
	}
	if ctx.Err() == nil {
		r.log.Warn("another server did not carry a request", "server", to.ID, obs.KeyAddress, to.Address, obs.KeyAgent, agent.Name, obs.Err(err))
	}
	// The client may repeat the request: it was not sent, and the agent connects again soon.
	return nil, &refusal{code: http.StatusServiceUnavailable, retry: time.Second, message: fmt.Sprintf(
		"agent %q was connected to another server, which does not respond: try again", agent.Name)}
}

// ServeForwarded carries a connection of another server to an agent that is connected to this one. The other server has
// authenticated and authorized the caller, and records the request. It calls opened when the agent has opened a tunnel.
func (r *Relay) ServeForwarded(agent fleet.Agent, c wire.TunnelCaller, stream gateway.TunnelStream, opened func() error) error {
	release, err := r.open.take(anotherServer, agent)
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	defer release()
	ctx, cancel := context.WithTimeoutCause(stream.Context(), waitForTunnel, errNoTunnel)
	defer cancel()
	o, err := r.pools.open(ctx, agent, c)
	switch {
	case errors.Is(err, errNotConnected):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, errNoTunnel):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case err != nil:
		return err
	}
	if err := opened(); err != nil {
		o.abort()
		return err
	}
	return splice(stream, o)
}

// flushTimeout limits how long the agent may take to receive the rest of a connection that the other server has closed.
const flushTimeout = 5 * time.Second

// splice copies between the stream of another server and the tunnel of an agent, until the other server has closed the
// connection or one of them is lost.
func splice(stream gateway.TunnelStream, o *offer) error {
	ctx, abort := context.WithCancel(stream.Context())
	defer abort()
	from := tunnel.Server(stream, abort, tunnel.Addr("server"))
	toAgent, toServer := make(chan error, 1), make(chan error, 1)
	go func() { toAgent <- copyHalf(o.conn, from) }()
	go func() { toServer <- copyHalf(from, o.conn) }()
	closed := ctx.Done()
	for {
		select {
		case err := <-toAgent:
			if err != nil { // one of them is lost: not the end of the data
				o.abort()
				return err
			}
			if closed == nil {
				return o.conn.Close()
			}
			toAgent = nil
		case err := <-toServer:
			if errors.As(err, new(*lostError)) {
				o.abort()
				return status.Error(codes.Aborted, "the tunnel of the agent was lost: "+err.Error())
			}
			toServer = nil // if it failed, the other server has closed the connection
		case <-closed: // the other server reads no more, but the agent gets what it has sent
			if closed = nil; toAgent == nil {
				return o.conn.Close()
			}
			_ = o.conn.SetWriteDeadline(time.Now().Add(flushTimeout))
		}
	}
}

// copyHalf copies one direction of a connection to its end. It fails with a lostError if the data ends before.
func copyHalf(to, from *tunnel.Conn) error {
	if _, err := io.Copy(to, source{from}); err != nil {
		return err
	}
	return to.CloseWrite()
}

// lostError means that a connection was lost while it was read.
type lostError struct{ error }

// source tells errors of reading from those of writing.
type source struct{ *tunnel.Conn }

func (s source) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &lostError{err}
	}
	return n, err
}

// follow forgets what is known of agents that connect or disconnect, until ctx ends.
func (r *Relay) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.control.FollowChanges(ctx, func(changes []store.Change) {
			for _, c := range changes {
				if c.Kind == store.ChangeConnection {
					r.locations.forget(c.AgentID)
					r.absences.forget(c.AgentID)
				}
			}
		})
		if ctx.Err() != nil {
			return
		}
		r.log.Warn("following the change feed failed, retrying", obs.Err(err))
		wait.For(ctx, time.Second)
		r.locations.forgetAll()
		r.absences.forget("")
	}
}
