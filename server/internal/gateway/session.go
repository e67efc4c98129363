package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

const (
	helloTimeout = 10 * time.Second
	clockSkew    = 30 * time.Second
)

var (
	errTooMuch = status.Error(codes.ResourceExhausted, "the agent reports more than a bundle can hold")
	errStopped = status.Error(codes.Unavailable, "the server is stopping")
	errSilent  = status.Error(codes.DeadlineExceeded, "nothing was heard of the agent for longer than its lease")
	errRevoked = status.Error(codes.Unauthenticated, "the token was revoked or the agent deleted")
	// errGoodbye ends a session in good order.
	errGoodbye = errors.New("goodbye")
)

// session is one connected replica of an agent.
type session struct {
	gateway *Gateway
	stream  grpc.BidiStreamingServer[agentv1.ConnectRequest, agentv1.ConnectResponse]
	*caller
	conn      fleet.Connection
	allowance *allowance
	part      uint8 // when its token is looked at again
	hello     chan *wire.Hello
	wake      chan struct{}
	done      chan struct{} // closed by end
	// has is what the agent has of each target. Only the stream's handler touches it, told and rotation.
	has map[fleet.TargetID]possession
	// told is what control was told the agent is ahead with; nil until there is one. Once is enough: it keeps
	// that, and what it desires then is newer.
	told     map[fleet.TargetID]fleet.Version
	rotation *rotation

	mu         sync.Mutex
	todo       todo
	references map[fleet.TargetID]reference // nil until there is one
	endErr     error
	lastSeen   time.Time
	busy       bool // the reader waits for the intake, not for the agent
	silence    *time.Timer
	recorded   bool // control was told of the session, or may have been
	left       bool // it is off the books
	goneOnce   sync.Once
}

// todo is what the handler has to do, as marked by others. It is state, not a queue.
type todo struct {
	dirty     map[fleet.TargetID]time.Time        // since when
	all       bool                                // every target may have changed
	complete  bool                                // tell the agent when that has been sent
	held      map[fleet.TargetID]wire.TargetState // the agent's answer to send_held, once
	rotate    bool                                // ask whether a new token is due
	answer    *wire.TokenStored                   // of the agent, to a new token
	stored    int64                               // status frames that have been written
	goodbye   string
	within    time.Duration
	announced int64 // of stored
	awaiting  bool  // the agent was asked for TargetStates and has not answered
}

// Connect serves one replica of an agent for as long as it stays.
//
// It waits most of the time, on a stack that is as large as four times what is in use of it. So what is
// done before that, and all that takes room, is done in functions of its own that have returned by then.
func (g *Gateway) Connect(stream grpc.BidiStreamingServer[agentv1.ConnectRequest, agentv1.ConnectResponse]) error {
	s, err := g.newSession(stream)
	if err != nil {
		return err
	}
	go s.read()
	if err = s.begin(); err == nil {
		err = s.live()
		s.endRotation()
		s.disconnected(err)
	}
	s.gone()
	if errors.Is(err, errGoodbye) {
		return nil
	}
	return err
}

//go:noinline
func (g *Gateway) newSession(stream grpc.BidiStreamingServer[agentv1.ConnectRequest, agentv1.ConnectResponse]) (*session, error) {
	who := callerOf(stream.Context())
	s := &session{
		gateway: g, stream: stream, caller: who, hello: make(chan *wire.Hello, 1), wake: make(chan struct{}, 1),
		done: make(chan struct{}), has: map[fleet.TargetID]possession{}, lastSeen: time.Now(),
		allowance: g.limiters.of(who.agent.ID), part: uint8(rand.N(60)),
	}
	if err := s.allowance.connect(); err != nil {
		s.log().Info("an agent connects too often")
		return nil, err
	}
	return s, nil
}

// begin comes to terms with the agent. The caller calls gone, whatever it returns.
//
//go:noinline
func (s *session) begin() error {
	ctx := s.stream.Context()
	hello, err := s.awaitHello(ctx)
	if err != nil {
		return err
	}
	if err := s.letIn(ctx, hello); err != nil {
		return err
	}
	s.log().Info("agent connected", "role", s.conn.Role(), obs.KeyVersion, hello.AgentVersion, "kubeVersion", hello.KubeVersion, obs.KeyAddress, s.conn.RemoteAddr)
	s.checkClock(ctx, hello.Clock)
	s.mark(func(t *todo) { t.rotate = true })
	s.watchSilence()
	return nil
}

// letIn takes the agent in when it is its turn.
func (s *session) letIn(ctx context.Context, hello *wire.Hello) error {
	release, err := take(ctx, s.gateway.arrivals)
	if err != nil {
		return err
	}
	defer release()
	now := time.Now()
	s.conn = fleet.Connection{
		SessionID: fleet.NewSessionID(), AgentID: s.agent.ID, TenantID: s.agent.TenantID, Replica: hello.Replica,
		Version: hello.AgentVersion, KubeVersion: hello.KubeVersion, ClusterUID: hello.ClusterUID,
		RemoteAddr: remoteAddr(ctx), ConnectedAt: now, LastSeenAt: now, Standby: hello.Standby,
	}
	// Joined before the first read of rows: a change in between marks the session dirty.
	if !s.gateway.join(s) {
		return errStopped
	}
	return s.welcome(ctx, hello)
}

// log makes a logger when there is something to say: thousands of sessions have nothing.
func (s *session) log() *slog.Logger {
	l := s.gateway.log.With(obs.KeyTenant, s.tenant.Name, obs.KeyAgent, s.agent.Name)
	if s.conn.SessionID != "" {
		l = l.With(obs.KeyReplica, s.conn.Replica, obs.KeySession, string(s.conn.SessionID))
	}
	return l
}

func (s *session) disconnected(err error) {
	reason := endReason(err)
	s.gateway.metrics.ended.WithLabelValues(reason).Inc()
	if err == nil || errors.Is(err, errGoodbye) || errors.Is(err, io.EOF) { // the reason says it all
		s.log().Info("agent disconnected", "role", s.conn.Role(), obs.KeyReason, reason)
		return
	}
	s.log().Info("agent disconnected", "role", s.conn.Role(), obs.KeyReason, reason, obs.Err(err))
}

func (s *session) awaitHello(ctx context.Context) (*wire.Hello, error) {
	timeout := time.NewTimer(helloTimeout)
	defer timeout.Stop()
	select {
	case hello := <-s.hello:
		return hello, nil
	case <-s.done:
		return nil, s.ended()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timeout.C:
		return nil, status.Error(codes.DeadlineExceeded, "no Hello within "+helloTimeout.String())
	}
}

// live works off what others mark until the session ends.
func (s *session) live() error {
	age := s.gateway.cfg.MaxAge*9/10 + rand.N(s.gateway.cfg.MaxAge/5)
	old := time.AfterFunc(age, func() { s.sayGoodbye("the connection has reached its age", time.Second) })
	defer old.Stop()
	ended := s.stream.Context().Done()
	for attempt := 0; ; {
		select {
		case <-ended:
			return status.FromContextError(s.stream.Context().Err()).Err()
		case <-s.done:
			return s.ended()
		case <-s.wake:
		}
		again, err := s.step(attempt)
		if err != nil {
			return err
		}
		attempt = again
	}
}

// step works once. It returns how often in a row that has failed for a reason that may pass, and then
// sees to it that it is tried again.
//
//go:noinline
func (s *session) step(attempt int) (failed int, err error) {
	err = s.work(s.stream.Context())
	if err == nil || !errors.As(err, new(*laterError)) {
		return 0, err
	}
	s.log().Warn("serving an agent, trying again", obs.Err(err))
	time.AfterFunc(retryDelay(attempt), func() { signal(s.wake) })
	return attempt + 1, nil
}

// watchSilence ends the session when nothing is heard for longer than the lease. It does not rely
// on the handler, which may be blocked by an agent that takes nothing.
func (s *session) watchSilence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.gateway.cfg.Lease
	s.silence = time.AfterFunc(lease, func() {
		s.mu.Lock()
		quiet := time.Since(s.lastSeen)
		if s.busy {
			quiet = 0
		}
		if quiet < lease {
			s.silence.Reset(lease - quiet)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		s.end(errSilent)
		s.gone()
	})
}

// gone takes the session off the books, once. Its end is told before it leaves: a gateway that stops writes down what
// it was told when the last session has left, and nothing after that.
func (s *session) gone() {
	s.goneOnce.Do(func() {
		s.mu.Lock()
		if s.silence != nil {
			s.silence.Stop()
		}
		s.left = true
		s.mu.Unlock()
		s.close()
		s.gateway.leave(s)
	})
}

// record notes that control was told of the session. Who was told of its end before would have the agent connected for
// ever, so an end that came meanwhile is told now.
func (s *session) record() {
	s.mu.Lock()
	s.recorded = true
	s.mu.Unlock()
	s.close()
}

// close has the end of a session told that control knows of, once.
func (s *session) close() {
	s.mu.Lock()
	due := s.recorded && s.left
	s.recorded = s.recorded && !due
	lastSeen := s.lastSeen
	s.mu.Unlock()
	if due {
		s.gateway.closing.add(s.conn, lastSeen)
	}
}

// end makes the handler return with err. The first one counts.
func (s *session) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endErr == nil {
		s.endErr = err
		close(s.done)
	}
}

func (s *session) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endErr
}

func (s *session) mark(set func(*todo)) {
	s.mu.Lock()
	set(&s.todo)
	s.mu.Unlock()
	signal(s.wake)
}

func (s *session) markDirty(id fleet.TargetID, since time.Time) {
	s.mark(func(t *todo) {
		if t.dirty == nil {
			t.dirty = map[fleet.TargetID]time.Time{}
		}
		if _, ok := t.dirty[id]; !ok {
			t.dirty[id] = since
		}
	})
}

func (s *session) confirm(n int64) { s.mark(func(t *todo) { t.stored = max(t.stored, n) }) }

func (s *session) sayGoodbye(reason string, within time.Duration) {
	s.mark(func(t *todo) { t.goodbye, t.within = reason, within })
}

func remoteAddr(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// endReason is a bounded set of words for metrics and logs.
func endReason(err error) string {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return "closed by the agent"
	case errors.Is(err, errGoodbye):
		return "goodbye"
	case errors.Is(err, errSilent):
		return "silent"
	case errors.Is(err, errRevoked):
		return "revoked"
	case errors.Is(err, errStopped):
		return "stopped"
	case errors.Is(err, wire.ErrFrame), status.Code(err) == codes.InvalidArgument:
		return "malformed frame"
	case status.Code(err) == codes.ResourceExhausted:
		return "limited"
	case status.Code(err) == codes.Canceled:
		return "connection lost"
	default:
		return "error"
	}
}

// laterError is a failure that is not the agent's and may pass.
type laterError struct{ err error }

func (e *laterError) Error() string { return e.err.Error() }
func (e *laterError) Unwrap() error { return e.err }

func later(format string, args ...any) error { return &laterError{fmt.Errorf(format, args...)} }
