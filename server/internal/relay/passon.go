package relay

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/gateway"
)

// passOn gives a tunnel to the server that has asked for it: that of the control connection of the agent. Frames are copied as
// they are, so that the agent and that server limit each other.
func (r *Relay) passOn(agent fleet.Agent, server string, stream gateway.TunnelStream) error {
	to, err := r.askedBy(stream.Context(), agent, server)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	peer, release, err := r.peers.Offer(ctx, to, agent)
	if err != nil {
		r.log.Warn("another server did not take a tunnel", "server", to.ID, obs.KeyAddress, to.Address, obs.KeyAgent, agent.Name, obs.Err(err))
		return status.Error(codes.Unavailable, "the server that has asked for the tunnel does not respond")
	}
	defer release()
	go func() {
		for {
			frame, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				_ = peer.CloseSend()
				return
			}
			if err != nil || peer.Send(frame) != nil {
				cancel()
				return
			}
		}
	}()
	for {
		frame, err := peer.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(frame); err != nil {
			return err
		}
	}
}

// askedBy returns a server that has a connection of an agent. An ID that an agent sends selects one of these servers only.
func (r *Relay) askedBy(ctx context.Context, agent fleet.Agent, server string) (fleet.ServerReplica, error) {
	for _, maxAge := range []time.Duration{locationTTL, locationRetry} {
		servers, err := r.locations.of(ctx, agent.ID, maxAge)
		if err != nil {
			return fleet.ServerReplica{}, err
		}
		for _, s := range servers {
			if s.ID == server && s.Address != "" {
				return s, nil
			}
		}
	}
	return fleet.ServerReplica{}, status.Error(codes.FailedPrecondition, "the server that has asked for the tunnel is not connected to the agent, or has no --private-listen")
}

// ServeOffered uses a tunnel that an agent has opened to another server.
func (r *Relay) ServeOffered(agent fleet.Agent, stream gateway.TunnelStream) error {
	return r.pools.serve(agent, stream, func(string) bool { return false }, nil)
}
