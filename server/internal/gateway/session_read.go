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

// read takes frames until the stream ends.
func (s *session) read() {
	ctx := s.stream.Context()
	var state readState
	for {
		frame, err := s.stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errGoodbye // the agent has said all it will: an orderly end
			}
			s.end(err)
			return
		}
		if s.ended() != nil { // the handler may be blocked: nothing more is taken all the same
			return
		}
		s.touch(true)
		err = s.take(ctx, &state, frame)
		s.touch(false)
		if err != nil {
			if errors.Is(err, wire.ErrFrame) {
				err = status.Error(codes.InvalidArgument, err.Error())
			}
			s.end(err)
			return
		}
	}
}

// readState is what the order of frames depends on.
type readState struct {
	hello, held bool
	standby     bool
	statuses    int64
}

func (s *session) touch(busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastSeen, s.busy = time.Now(), busy
}

func (s *session) take(ctx context.Context, state *readState, frame *agentv1.ConnectRequest) error {
	if err := s.limit(ctx, frame); err != nil {
		return err
	}
	count := s.gateway.metrics.frames
	hello, isHello := frame.GetFrame().(*agentv1.ConnectRequest_Hello)
	if isHello == state.hello {
		return status.Error(codes.InvalidArgument, "Hello has to be the first frame, and to come once")
	}
	if state.standby && reports(frame) {
		return status.Error(codes.InvalidArgument, "a replica that another one leads has nothing to report")
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
		return s.takeHeld(state, f.TargetStates)
	case *agentv1.ConnectRequest_Status:
		count.WithLabelValues("in", "status").Inc()
		return s.takeStatus(ctx, state, f.Status)
	case *agentv1.ConnectRequest_Events:
		count.WithLabelValues("in", "events").Inc()
		return s.takeEvents(ctx, f.Events)
	case *agentv1.ConnectRequest_TokenStored:
		count.WithLabelValues("in", "token_stored").Inc()
		stored, err := wire.ParseTokenStored(f.TokenStored)
		if err == nil {
			s.answer(stored)
		}
		return err
	case *agentv1.ConnectRequest_Capabilities:
		count.WithLabelValues("in", "capabilities").Inc()
		return s.takeCapabilities(ctx, f.Capabilities)
	case *agentv1.ConnectRequest_Heartbeat:
		count.WithLabelValues("in", "heartbeat").Inc()
	default: // a frame of a newer agent
		count.WithLabelValues("in", "unknown").Inc()
	}
	return nil
}

// reports says whether a frame is one that only the replica that leads may send.
func reports(frame *agentv1.ConnectRequest) bool {
	return frame.GetTargetStates() != nil || frame.GetStatus() != nil || frame.GetEvents() != nil || frame.GetCapabilities() != nil
}

// limit takes one frame off what the agent may send. Statuses are slowed down, by not reading on:
// refused, they would be sent again.
func (s *session) limit(ctx context.Context, frame *agentv1.ConnectRequest) error {
	if frame.GetStatus() != nil {
		return s.allowance.status(ctx)
	}
	return s.allowance.frame()
}

func (s *session) takeHeld(state *readState, m *agentv1.TargetStates) error {
	if state.held {
		return status.Error(codes.InvalidArgument, "TargetStates must not be sent twice")
	}
	state.held = true
	held, err := wire.ParseTargetStates(m)
	if err != nil {
		return err
	}
	s.mark(func(t *todo) { t.held = held })
	return nil
}

func (s *session) takeStatus(ctx context.Context, state *readState, m *agentv1.Status) error {
	parsed, err := wire.ParseStatus(m)
	if err != nil {
		return err
	}
	// An agent whose clock is ahead must not make its statuses look newer than now.
	if now := time.Now(); parsed.Observed.AsOf.After(now) || parsed.Observed.AsOf.IsZero() {
		parsed.Observed.AsOf = now
	}
	state.statuses++
	s.gateway.worked.Add(1)
	return s.gateway.intake.status(ctx, s, state.statuses, store.Report(parsed))
}

func (s *session) takeEvents(ctx context.Context, m *agentv1.Events) error {
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

// takeCapabilities has charts rendered for what the agent's cluster offers, which it tells when Welcome asks and when
// that has changed. Each time may mean that all of them are rendered again, so their number is bounded. Where they
// cannot be recorded the agent connects again, and names them again.
func (s *session) takeCapabilities(ctx context.Context, m *agentv1.Capabilities) error {
	if err := s.allowance.capabilities(); err != nil {
		return err
	}
	parsed, err := wire.ParseCapabilities(m)
	if err != nil {
		return err
	}
	if err := s.gateway.capable(ctx, s.agent, parsed); err != nil && ctx.Err() == nil {
		s.log().Warn("recording what a cluster offers", obs.Err(err))
		return status.Error(codes.Unavailable, "the server cannot record what the cluster offers now")
	}
	return nil
}
