package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// read handles frames until the stream ends.
func (n *connection) read(ctx context.Context) error {
	first := true
	for {
		frame, err := n.stream.Recv()
		if errors.Is(err, io.EOF) && !first {
			return &goodbye{reason: "the stream ended", reconnectWithin: time.Second}
		}
		if err != nil {
			return err
		}
		w, isWelcome := frame.GetFrame().(*agentv1.ConnectResponse_Welcome)
		if isWelcome != first {
			return &configError{kind: KindProtocol, err: fmt.Errorf("%w: Welcome must be the first frame and must not be repeated", wire.ErrFrame)}
		}
		if first = false; isWelcome {
			n.timeout.Stop()
			err = n.handleWelcome(ctx, w.Welcome)
		} else {
			err = n.handleFrame(ctx, frame)
		}
		if errors.Is(err, wire.ErrFrame) {
			return &configError{kind: KindProtocol, err: err}
		}
		if err != nil {
			return err
		}
	}
}

func (n *connection) handleWelcome(ctx context.Context, m *agentv1.Welcome) error {
	n.cfg.Metrics.frames.WithLabelValues("in", "welcome").Inc()
	w, err := wire.ParseWelcome(m)
	if err != nil {
		return err
	}
	n.log = n.log.With(obs.KeyTenant, w.Tenant, obs.KeyAgent, w.AgentName)
	n.log.Info("connected", obs.KeySession, string(w.Session), "serverVersion", w.ServerVersion, "standby", n.cfg.Standby)
	// Set before the writer starts, which uses them.
	n.capabilities.requested, n.capabilities.updates = w.SendCapabilities, w.AcceptCapabilities
	n.applications.accepted, n.checks.accepted = w.AcceptApplications, w.AcceptEndpointChecks
	if n.cfg.Standby {
		if n.cfg.Welcomed != nil {
			_, _, _ = n.cfg.Welcomed(ctx, w)
		}
		n.lease <- w.Lease
		n.setWelcomed()
		return nil
	}
	n.mu.Lock()
	n.setAgentLocked(w.AgentID)
	n.mu.Unlock()
	n.statuses.startConnection(w.SendStatuses)
	n.lease <- w.Lease // the writer sends heartbeats: starting an engine may take longer than the lease lasts
	recovered, err := n.setEngine(ctx, w)
	if err != nil {
		return err
	}
	n.startSnapshot()
	// After a restart Hello did not list any target, so that a server without desired states did not ask for the list. It
	// needs the list nevertheless: its next desired state may be older than what is in the cluster.
	if w.SendTargetStates || recovered {
		n.sendStates <- struct{}{}
		n.wake.Set()
	}
	n.setWelcomed()
	return nil
}

// setWelcomed records that the server has accepted the agent.
func (n *connection) setWelcomed() {
	n.welcomed = true
	n.setConnected(true)
	n.cfg.Metrics.connects.Inc()
}

func (n *connection) handleFrame(ctx context.Context, frame *agentv1.ConnectResponse) error {
	count := n.cfg.Metrics.frames
	if n.cfg.Standby && !forStandby(frame) {
		count.WithLabelValues("in", "unknown").Inc() // from a server that does not know standby connections
		return nil
	}
	switch f := frame.GetFrame().(type) {
	case *agentv1.ConnectResponse_OpenTunnels:
		count.WithLabelValues("in", "open_tunnels").Inc()
		n.openTunnels(int(f.OpenTunnels.GetCount()), f.OpenTunnels.GetServer())
	case *agentv1.ConnectResponse_Desired:
		count.WithLabelValues("in", "desired").Inc()
		return n.handleDesired(ctx, f.Desired)
	case *agentv1.ConnectResponse_PushEnvironments:
		count.WithLabelValues("in", "push_environments").Inc()
		return n.handleEnvironments(f.PushEnvironments)
	case *agentv1.ConnectResponse_StatusStored:
		count.WithLabelValues("in", "status_stored").Inc()
		n.forget(n.statuses.confirm(f.StatusStored.GetCount()))
		n.wake.Set() // the window has space again
	case *agentv1.ConnectResponse_SnapshotComplete:
		count.WithLabelValues("in", "snapshot_complete").Inc()
		n.completeSnapshot()
	case *agentv1.ConnectResponse_NewToken:
		count.WithLabelValues("in", "new_token").Inc()
		return n.handleNewToken(ctx, f.NewToken)
	case *agentv1.ConnectResponse_Goodbye:
		count.WithLabelValues("in", "goodbye").Inc()
		return &goodbye{
			reason:          f.Goodbye.GetReason(),
			reconnectWithin: min(max(0, time.Duration(f.Goodbye.GetReconnectWithinMilliseconds())*time.Millisecond), time.Minute),
		}
	default: // a frame of a newer server
		count.WithLabelValues("in", "unknown").Inc()
	}
	return nil
}

// forStandby reports whether a standby handles a frame.
func forStandby(frame *agentv1.ConnectResponse) bool {
	switch frame.GetFrame().(type) {
	case *agentv1.ConnectResponse_Goodbye, *agentv1.ConnectResponse_OpenTunnels:
		return true
	default:
		return false
	}
}
