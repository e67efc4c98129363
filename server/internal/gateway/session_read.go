package gateway

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// read handles frames until the stream ends.
func (s *session) read() {
	ctx := s.stream.Context()
	var state readState
	for {
		frame, err := s.stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errGoodbye // the agent closed its side: a normal end
			}
			s.end(err)
			return
		}
		if s.ended() != nil { // the handler may be blocked and not have returned yet
			return
		}
		s.markSeen(true)
		err = s.handleFrame(ctx, &state, frame)
		s.markSeen(false)
		if err != nil {
			if errors.Is(err, wire.ErrFrame) {
				err = status.Error(codes.InvalidArgument, err.Error())
			}
			s.end(err)
			return
		}
	}
}

// readState is the state that the allowed order of frames depends on.
type readState struct {
	hello, held bool
	standby     bool
	statuses    int64
}

func (s *session) markSeen(busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.liveness.lastSeen, s.liveness.intakeBusy = time.Now(), busy
}

func (s *session) handleFrame(ctx context.Context, state *readState, frame *agentv1.ConnectRequest) error {
	if err := s.limit(ctx, frame); err != nil {
		return err
	}
	count := s.gateway.metrics.frames
	hello, isHello := frame.GetFrame().(*agentv1.ConnectRequest_Hello)
	if isHello == state.hello {
		return status.Error(codes.InvalidArgument, "Hello must be the first frame and must not be repeated")
	}
	if state.standby && leaderOnly(frame) {
		return status.Error(codes.InvalidArgument, "a standby replica must not report")
	}
	switch f := frame.GetFrame().(type) {
	case *agentv1.ConnectRequest_Hello:
		count.WithLabelValues("in", "hello").Inc()
		state.hello = true
		parsed, err := wire.ParseHello(hello.Hello)
		if err == nil {
			state.standby = parsed.Standby
			s.hello <- &parsed
		}
		return err
	case *agentv1.ConnectRequest_TargetStates:
		count.WithLabelValues("in", "target_states").Inc()
		return s.handleTargetStates(state, f.TargetStates)
	case *agentv1.ConnectRequest_Status:
		count.WithLabelValues("in", "status").Inc()
		return s.handleStatus(ctx, state, f.Status)
	case *agentv1.ConnectRequest_Events:
		count.WithLabelValues("in", "events").Inc()
		return s.handleEvents(ctx, f.Events)
	case *agentv1.ConnectRequest_TokenStored:
		count.WithLabelValues("in", "token_stored").Inc()
		stored, err := wire.ParseTokenStored(f.TokenStored)
		if err == nil {
			s.scheduleTokenStored(stored)
		}
		return err
	case *agentv1.ConnectRequest_Capabilities:
		count.WithLabelValues("in", "capabilities").Inc()
		return s.handleCapabilities(ctx, f.Capabilities)
	case *agentv1.ConnectRequest_Applications:
		count.WithLabelValues("in", "applications").Inc()
		return s.handleApplications(ctx, f.Applications)
	case *agentv1.ConnectRequest_EndpointChecks:
		count.WithLabelValues("in", "endpoint_checks").Inc()
		return s.handleEndpointChecks(ctx, f.EndpointChecks)
	case *agentv1.ConnectRequest_Heartbeat:
		count.WithLabelValues("in", "heartbeat").Inc()
	default: // a frame of a newer agent
		count.WithLabelValues("in", "unknown").Inc()
	}
	return nil
}

// leaderOnly reports whether only the leader may send a frame.
func leaderOnly(frame *agentv1.ConnectRequest) bool {
	return frame.GetTargetStates() != nil || frame.GetStatus() != nil || frame.GetEvents() != nil || frame.GetCapabilities() != nil || frame.GetApplications() != nil ||
		frame.GetEndpointChecks() != nil
}

// limit applies the rate limits of the agent. It delays a status instead of rejecting it, because the agent would
// send it again.
func (s *session) limit(ctx context.Context, frame *agentv1.ConnectRequest) error {
	if frame.GetStatus() != nil {
		return s.limits.status(ctx)
	}
	return s.limits.frame()
}

func (s *session) handleTargetStates(state *readState, m *agentv1.TargetStates) error {
	if state.held {
		return status.Error(codes.InvalidArgument, "TargetStates must not be sent twice")
	}
	state.held = true
	held, err := wire.ParseTargetStates(m)
	if err != nil {
		return err
	}
	s.schedule(func(w *pendingWork) { w.held = held })
	return nil
}

func (s *session) handleStatus(ctx context.Context, state *readState, m *agentv1.Status) error {
	parsed, err := wire.ParseStatus(m)
	if err != nil {
		return err
	}
	// The clock of an agent may be ahead. No status is newer than now.
	if now := time.Now(); parsed.Observed.AsOf.After(now) || parsed.Observed.AsOf.IsZero() {
		parsed.Observed.AsOf = now
	}
	state.statuses++
	s.gateway.activity.Add(1)
	return s.gateway.intake.status(ctx, s, state.statuses, store.Report(parsed))
}

func (s *session) handleEvents(ctx context.Context, m *agentv1.Events) error {
	parsed, err := wire.ParseEvents(m)
	if err != nil {
		return err
	}
	now := time.Now()
	events := make([]control.AgentEvent, 0, len(parsed))
	for _, e := range parsed {
		if e.Event.At.After(now) || e.Event.At.IsZero() {
			e.Event.At = now
		}
		events = append(events, control.AgentEvent{Target: e.Target, Event: e.Event})
	}
	return s.gateway.intake.events(ctx, s.agent, events)
}

// handleApplications records the Applications of Argo CD that the agent does not manage.
func (s *session) handleApplications(ctx context.Context, m *agentv1.Applications) error {
	if err := s.limits.capabilities(); err != nil {
		return err
	}
	parsed, err := wire.ParseApplications(m)
	if err != nil {
		return err
	}
	if err := s.gateway.control.AgentApplications(ctx, s.agent, parsed); err != nil {
		s.log().Warn("recording the Applications of a cluster failed", obs.Err(err))
		return status.Error(codes.Unavailable, "the server cannot record the Applications of the cluster now")
	}
	return nil
}

// handleCapabilities records the capabilities of the agent's cluster. An agent sends them when Welcome asks for
// them and when they change. Each time may render all charts again, so the rate is limited. If they cannot be
// recorded, the agent connects again and sends them again.
func (s *session) handleCapabilities(ctx context.Context, m *agentv1.Capabilities) error {
	if err := s.limits.capabilities(); err != nil {
		return err
	}
	parsed, err := wire.ParseCapabilities(m)
	if err != nil {
		return err
	}
	if err := s.gateway.capable(ctx, s.agent, parsed); err != nil && ctx.Err() == nil {
		s.log().Warn("recording the capabilities of a cluster failed", obs.Err(err))
		return status.Error(codes.Unavailable, "the server cannot record the capabilities of the cluster now")
	}
	return nil
}
