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
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

const (
	helloTimeout = 10 * time.Second
	clockSkew    = 30 * time.Second
)

var (
	errTooManyObjects = status.Error(codes.ResourceExhausted, "the agent reports more objects than a bundle can contain")
	errStopped        = status.Error(codes.Unavailable, "the server is stopping")
	errLeaseExpired   = status.Error(codes.DeadlineExceeded, "the agent sent nothing for longer than its lease")
	errRevoked        = status.Error(codes.Unauthenticated, "the token was revoked or the agent was deleted")
	// errGoodbye ends a session normally.
	errGoodbye = errors.New("goodbye")
)

// session is one connected replica of an agent.
type session struct {
	gateway *Gateway
	stream  grpc.BidiStreamingServer[agentv1.ConnectRequest, agentv1.ConnectResponse]
	*caller
	conn        fleet.Connection
	tunnel      bool // the agent accepts OpenTunnels
	limits      *agentLimits
	recheckSlot uint8 // selects the tick at which the token is checked again
	hello       chan *wire.Hello
	wake        wait.Signal
	done        chan struct{} // closed by end

	sentState

	mu          sync.Mutex
	pendingWork pendingWork
	references  map[fleet.TargetID]reference // nil until there is one
	endErr      error
	liveness    liveness
	recorded    bool // control recorded the connection, or may have
	removed     bool // from the registry
	removeOnce  sync.Once
}

// sentState is what the agent has. Only the goroutine of the stream's handler uses it.
type sentState struct {
	held map[fleet.TargetID]heldTarget // what the agent has of each target
	// reportedAhead is the version of each target that was reported to control as ahead; nil until there is one. One
	// report is enough: control remembers it and desires a newer version.
	reportedAhead map[fleet.TargetID]fleet.Version
	rotation      *rotation
	environments  []fleet.PushEnvironment // as they were sent; nil before that
}

// liveness decides whether the lease of a session has expired.
type liveness struct {
	lastSeen   time.Time
	intakeBusy bool        // the reader waits for the intake, not for the agent
	timer      *time.Timer // nil until the handshake is complete
}

// pendingWork is what the handler has to do. Other goroutines schedule it. It is state, not a queue.
type pendingWork struct {
	dirty           map[fleet.TargetID]time.Time        // targets that changed, and when
	all             bool                                // every target may have changed
	environments    bool                                // the push environments may have changed
	tunnels         int                                 // ask the agent for that many tunnels
	complete        bool                                // send SnapshotComplete after the targets
	held            map[fleet.TargetID]wire.TargetState // the agent's answer to send_held
	awaitingStates  bool                                // the agent was asked for TargetStates and has not answered
	rotate          bool                                // ask control whether a new token is due
	tokenStored     *wire.TokenStored                   // the agent's answer to a new token
	stored          int64                               // number of status frames that were written
	confirmed       int64                               // the value of stored in the last StatusStored frame
	goodbye         string                              // the reason to end the session; "" to continue
	reconnectWithin time.Duration                       // sent with the goodbye
}

// Connect serves one replica of an agent until its session ends.
//
// It waits most of the time. The stack of a goroutine can be four times as large as the part in use. Therefore
// functions that need much stack return before the wait.
func (g *Gateway) Connect(stream grpc.BidiStreamingServer[agentv1.ConnectRequest, agentv1.ConnectResponse]) error {
	s, err := g.newSession(stream)
	if err != nil {
		return err
	}
	go s.read()
	if err = s.start(); err == nil {
		err = s.serve()
		s.endRotation()
		s.disconnected(err)
	}
	s.remove()
	if errors.Is(err, errGoodbye) {
		return nil
	}
	return err
}

//go:noinline
func (g *Gateway) newSession(stream grpc.BidiStreamingServer[agentv1.ConnectRequest, agentv1.ConnectResponse]) (*session, error) {
	c := callerOf(stream.Context())
	s := &session{
		gateway: g, stream: stream, caller: c, hello: make(chan *wire.Hello, 1), wake: wait.NewSignal(),
		done: make(chan struct{}), sentState: sentState{held: map[fleet.TargetID]heldTarget{}}, liveness: liveness{lastSeen: time.Now()},
		limits: g.limiters.get(c.agent.ID), recheckSlot: uint8(rand.N(recheckSlots)),
	}
	if err := s.limits.connect(); err != nil {
		s.log().Info("agent exceeds its connection rate limit")
		return nil, err
	}
	return s, nil
}

// start completes the handshake and starts the lease. The caller calls remove, even after an error.
func (s *session) start() error {
	ctx := s.stream.Context()
	hello, err := s.awaitHello(ctx)
	if err != nil {
		return err
	}
	if err := s.handshake(ctx, hello); err != nil {
		return err
	}
	s.log().Info("agent connected", "role", s.conn.Role(), obs.KeyVersion, hello.AgentVersion, "kubeVersion", hello.KubeVersion, obs.KeyAddress, s.conn.RemoteAddr)
	s.checkClock(ctx, hello.Clock)
	s.checkEngine(ctx)
	s.schedule(func(w *pendingWork) { w.rotate = true })
	s.watchLease()
	return nil
}

// handshake registers the session and answers Hello, when a slot is free.
func (s *session) handshake(ctx context.Context, hello *wire.Hello) error {
	release, err := acquire(ctx, s.gateway.slots.handshakes)
	if err != nil {
		return err
	}
	defer release()
	now := time.Now()
	s.conn = fleet.Connection{
		SessionID: fleet.NewSessionID(), AgentID: s.agent.ID, TenantID: s.agent.TenantID, Replica: hello.Replica,
		Version: hello.AgentVersion, KubeVersion: hello.KubeVersion, ClusterUID: hello.ClusterUID,
		EngineNamespace: hello.EngineNamespace, RemoteAddr: remoteAddr(ctx), ConnectedAt: now, LastSeenAt: now, Standby: hello.Standby,
	}
	s.tunnel = hello.Tunnel
	// Register before the first read of rows: a change in between marks the session dirty.
	if !s.gateway.register(s) {
		return errStopped
	}
	return s.welcome(ctx, hello)
}

// log creates a logger when it is needed: most of the sessions log nothing.
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
	if err == nil || errors.Is(err, errGoodbye) || errors.Is(err, io.EOF) { // the reason is enough
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

// serve processes pending work until the session ends.
func (s *session) serve() error {
	age := s.gateway.cfg.MaxAge*9/10 + rand.N(s.gateway.cfg.MaxAge/5)
	old := time.AfterFunc(age, func() { s.scheduleGoodbye("the connection reached its maximum age", time.Second) })
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
		again, err := s.processOnce(attempt)
		if err != nil {
			return err
		}
		attempt = again
	}
}

// processOnce processes the pending work. After a retryable error it schedules a retry and returns the number of
// consecutive failures.
func (s *session) processOnce(attempt int) (failed int, err error) {
	err = s.process(s.stream.Context())
	if err == nil || !errors.As(err, new(*retryableError)) {
		return 0, err
	}
	s.log().Warn("serving an agent failed, retrying", obs.Err(err))
	time.AfterFunc(retryDelay(attempt), func() { s.wake.Set() })
	return attempt + 1, nil
}

// watchLease ends the session when the agent sends nothing for longer than the lease. It does not rely on the
// handler, which blocks while the agent receives nothing.
func (s *session) watchLease() {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.gateway.cfg.Lease
	s.liveness.timer = time.AfterFunc(lease, func() {
		s.mu.Lock()
		silent := time.Since(s.liveness.lastSeen)
		if s.liveness.intakeBusy {
			silent = 0
		}
		if silent < lease {
			s.liveness.timer.Reset(lease - silent)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		s.end(errLeaseExpired)
		s.remove()
	})
}

// remove removes the session from the registry, once. It queues the record of the end first: a gateway that stops
// writes the queued records after the last session was removed, and none after that.
func (s *session) remove() {
	s.removeOnce.Do(func() {
		s.mu.Lock()
		if s.liveness.timer != nil {
			s.liveness.timer.Stop()
		}
		s.removed = true
		s.mu.Unlock()
		s.recordEnd()
		s.gateway.sessions.remove(s)
	})
}

// markRecorded notes that control recorded the connection. If the session has ended in the meantime it queues the
// record of the end now: if control recorded the end before the connection, the agent would stay connected
// forever.
func (s *session) markRecorded() {
	s.mu.Lock()
	s.recorded = true
	s.mu.Unlock()
	s.recordEnd()
}

// recordEnd queues the record of the end of a session whose connection control recorded, once.
func (s *session) recordEnd() {
	s.mu.Lock()
	due := s.recorded && s.removed
	s.recorded = s.recorded && !due
	lastSeen := s.liveness.lastSeen
	s.mu.Unlock()
	if due {
		s.gateway.disconnects.add(s.conn, lastSeen)
	}
}

// end makes the handler return err. Only the first call has an effect.
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

func (s *session) schedule(set func(*pendingWork)) {
	s.mu.Lock()
	set(&s.pendingWork)
	s.mu.Unlock()
	s.wake.Set()
}

func (s *session) markDirty(id fleet.TargetID, since time.Time) {
	s.schedule(func(w *pendingWork) {
		if w.dirty == nil {
			w.dirty = map[fleet.TargetID]time.Time{}
		}
		if _, ok := w.dirty[id]; !ok {
			w.dirty[id] = since
		}
	})
}

func (s *session) confirm(n int64) { s.schedule(func(w *pendingWork) { w.stored = max(w.stored, n) }) }

func (s *session) scheduleGoodbye(reason string, within time.Duration) {
	s.schedule(func(w *pendingWork) { w.goodbye, w.reconnectWithin = reason, within })
}

func remoteAddr(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// endReason classifies the end of a session, for metrics and logs.
func endReason(err error) string {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return "closed by the agent"
	case errors.Is(err, errGoodbye):
		return "goodbye"
	case errors.Is(err, errLeaseExpired):
		return "lease expired"
	case errors.Is(err, errRevoked):
		return "revoked"
	case errors.Is(err, errStopped):
		return "stopped"
	case errors.Is(err, wire.ErrFrame), status.Code(err) == codes.InvalidArgument:
		return "malformed frame"
	case status.Code(err) == codes.ResourceExhausted:
		return "rate limited"
	case status.Code(err) == codes.Canceled:
		return "connection lost"
	default:
		return "error"
	}
}

// retryableError is a temporary failure that the agent did not cause.
type retryableError struct{ err error }

func (e *retryableError) Error() string { return e.err.Error() }
func (e *retryableError) Unwrap() error { return e.err }

func retryable(format string, args ...any) error { return &retryableError{fmt.Errorf(format, args...)} }
