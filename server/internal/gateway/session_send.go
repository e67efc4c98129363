package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// welcome answers Hello. When the agent holds exactly what the server desires, nothing else is
// sent; otherwise the rest happens when it is known what it holds: at once when Hello said so, and when
// the agent has answered if not.
func (s *session) welcome(ctx context.Context, hello *wire.Hello) error {
	err := s.gateway.connected(ctx, s.conn)
	s.record() // whatever came of it
	if err != nil {
		s.log().Warn("recording a connection", obs.Err(err))
		return status.Error(codes.Unavailable, "the server cannot take connections now")
	}
	w := wire.Welcome{
		Session: s.conn.SessionID, AgentID: s.agent.ID, AgentName: s.agent.Name, Tenant: s.tenant.Name, Lease: s.gateway.cfg.Lease,
		Scope: s.agent.Scope, Namespaces: s.agent.Namespaces, ServerVersion: s.gateway.cfg.Version,
		SendCapabilities:   !s.conn.Standby && hello.CapabilitiesHash != "" && hello.CapabilitiesHash != s.agent.Capabilities,
		AcceptCapabilities: !s.conn.Standby,
	}
	if s.conn.Standby { // it holds nothing and is told nothing
		return s.sendWelcome(w)
	}
	targets, err := s.gateway.targetsOf(ctx, s.agent, nil)
	if err != nil {
		s.log().Warn("reading what an agent shall hold", obs.Err(err))
		return status.Error(codes.Unavailable, "the server cannot read desired state now")
	}
	state, statuses := hashes(targets)
	same := bytes.Equal(state, hello.StateHash)
	w.SendTargetStates, w.SendStatuses = !same && hello.TargetStates == nil, !bytes.Equal(statuses, hello.StatusHash)
	if !same {
		// Before the Welcome, which the agent may answer with TargetStates before this goes on.
		s.mark(func(t *todo) {
			if t.held == nil {
				t.awaiting, t.held = w.SendTargetStates, hello.TargetStates
			}
		})
	}
	if err := s.sendWelcome(w); err != nil || !same {
		return err
	}
	for _, t := range targets {
		if sendable(t) {
			s.has[t.ID] = possessed(t)
		}
	}
	return s.sendComplete()
}

func (s *session) sendWelcome(w wire.Welcome) error {
	return s.send("welcome", &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Welcome{Welcome: w.Proto()}})
}

// checkClock warns when agent and server disagree about the time.
func (s *session) checkClock(ctx context.Context, clock time.Time) {
	skew := time.Since(clock).Round(time.Second)
	if clock.IsZero() || skew.Abs() <= clockSkew {
		return
	}
	direction := "behind"
	if skew < 0 {
		direction = "ahead of"
	}
	message := fmt.Sprintf("the clock of replica %s is %s %s the server's: times of its reports and certificate checks are off", s.conn.Replica, skew.Abs(), direction)
	s.log().Warn("clock skew", obs.KeyReason, message)
	_ = s.gateway.intake.events(ctx, s.agent, []control.AgentEvent{{Event: fleet.Event{ // fails only with ctx
		At: time.Now(), Type: fleet.EventWarning, Reason: "ClockSkew", Message: message,
	}}})
}

// work does what has been marked since the last time. What fails for a reason that may pass is
// marked again.
func (s *session) work(ctx context.Context) error {
	job := s.takeTodo()
	if job.stored > job.announced {
		if err := s.send("status_stored", &agentv1.ConnectResponse{
			Frame: &agentv1.ConnectResponse_StatusStored{StatusStored: &agentv1.StatusStored{Count: job.stored}},
		}); err != nil {
			return err
		}
	}
	if job.goodbye != "" {
		return s.leaveInGoodOrder(job)
	}
	if job.answer != nil {
		if err := s.settleRotation(ctx, *job.answer); err != nil {
			return s.again(err, job)
		}
		job.answer = nil
	}
	if job.rotate {
		if err := s.rotate(ctx); err != nil {
			return s.again(err, job)
		}
		job.rotate = false
	}
	return s.again(s.deliver(ctx, job), job)
}

func (s *session) takeTodo() todo {
	s.mu.Lock()
	defer s.mu.Unlock()
	job := s.todo
	if s.conn.Standby { // what others mark is for the replica that leads
		job = todo{goodbye: job.goodbye, within: job.within}
	}
	s.todo = todo{stored: job.stored, announced: job.stored, awaiting: job.awaiting && job.held == nil}
	switch {
	case s.todo.awaiting: // nothing is sent before it is known what the agent has
		s.todo.dirty, s.todo.all = job.dirty, job.all
		job.dirty, job.all = nil, false
	case job.held != nil:
		s.has = possessions(job.held)
		job.held, job.all, job.complete = nil, true, true
	}
	return job
}

// again marks what a job was about, for the next time, if err is one that may pass.
func (s *session) again(err error, job todo) error {
	var passing *laterError
	if !errors.As(err, &passing) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.todo
	t.rotate = t.rotate || job.rotate
	if t.answer == nil {
		t.answer = job.answer
	}
	t.all = t.all || job.all
	t.complete = t.complete || job.complete
	if t.dirty == nil {
		t.dirty = map[fleet.TargetID]time.Time{}
	}
	maps.Copy(t.dirty, job.dirty) // older, so its times win
	return err
}

func (s *session) leaveInGoodOrder(job todo) error {
	if err := s.send("goodbye", &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Goodbye{
		Goodbye: &agentv1.Goodbye{Reason: job.goodbye, ReconnectWithinMilliseconds: job.within.Milliseconds()},
	}}); err != nil {
		return err
	}
	return errGoodbye
}

// deliver sends the newest state of the targets that a job names, of those that the agent lacks.
func (s *session) deliver(ctx context.Context, job todo) error {
	var ids []fleet.TargetID
	switch {
	case job.all:
	case len(job.dirty) > 0:
		ids = slices.Sorted(maps.Keys(job.dirty))
	default:
		return nil
	}
	targets, err := s.gateway.targetsOf(ctx, s.agent, ids)
	if err != nil {
		return later("reading desired state: %w", err)
	}
	// What cannot be sent now holds up nothing else of this agent.
	var postponed error
	for _, t := range targets {
		err := s.deliverOne(ctx, t, job.complete)
		if errors.As(err, new(*laterError)) {
			postponed = errors.Join(postponed, err)
			continue
		}
		if err != nil {
			return err
		}
		if since, ok := job.dirty[t.ID]; ok && !since.IsZero() {
			s.gateway.metrics.changeToSent.Observe(time.Since(since).Seconds())
		}
	}
	if postponed != nil {
		return postponed
	}
	if job.complete {
		return s.sendComplete()
	}
	return nil
}

// deliverOne sends one target, which the agent has missed or which is new.
func (s *session) deliverOne(ctx context.Context, t control.AgentTarget, missed bool) error {
	had, known := s.has[t.ID]
	switch decide(t, had, known) {
	case doNothing:
		return nil
	case tellAhead:
		return s.tellAhead(ctx, t, had.version)
	}
	d := wire.Desired{Target: t.ID, Tenant: t.Tenant, Deployment: t.DeploymentName, State: t.Desired}
	form, err := s.inline(ctx, &d, t.TenantID, missed)
	if err != nil {
		return err
	}
	if len(d.Bundle) > wire.MaxInlineBundle {
		defer func() { <-s.gateway.large }()
	}
	if form == "reference" {
		s.refer(t.ID, reference{digest: d.State.Digest, owner: t.TenantID})
	} else {
		s.refer(t.ID, reference{})
	}
	if err := s.send("desired", &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Desired{Desired: d.Proto()}}); err != nil {
		return err
	}
	s.has[t.ID] = possessed(t)
	s.gateway.worked.Add(1)
	s.gateway.metrics.desired.WithLabelValues(form).Inc()
	s.log().Info("desired state sent", obs.KeyTarget, string(t.ID), obs.KeyDeployment, t.DeploymentName,
		obs.KeyGeneration, t.Desired.Generation, obs.KeyCommit, t.Desired.Commit)
	return nil
}

// tellAhead tells control, once, that the agent is ahead of the server with a target.
func (s *session) tellAhead(ctx context.Context, t control.AgentTarget, has fleet.Version) error {
	if last, ok := s.told[t.ID]; ok && last == has {
		return nil
	}
	s.log().Warn("the agent is ahead of the server", obs.KeyTarget, string(t.ID), obs.KeyDeployment, t.DeploymentName, obs.KeyGeneration, has.Generation)
	if err := s.gateway.ahead(ctx, s.agent, t.ID, has); err != nil {
		return later("recording that an agent is ahead: %w", err)
	}
	if s.told == nil {
		s.told = map[fleet.TargetID]fleet.Version{}
	}
	s.told[t.ID] = has
	return nil
}

// inline puts a small bundle into d and says in which form the objects travel.
func (s *session) inline(ctx context.Context, d *wire.Desired, owner fleet.TenantID, missed bool) (form string, err error) {
	switch {
	case d.State.Tombstone:
		return "tombstone", nil
	case d.State.Detached:
		return "detached", nil
	}
	content, err := s.gateway.bundles.get(ctx, owner, d.State.Digest)
	switch {
	case errors.Is(err, store.ErrNotFound):
		// The agent may still have it; if not, its fetch fails and says so where users look.
		s.log().Error("a desired bundle is missing", obs.KeyTarget, string(d.Target), obs.KeyDigest, d.State.Digest)
		return "reference", nil
	case err != nil:
		return "", later("reading bundle %s: %w", d.State.Digest, err)
	case len(content) > wire.MaxInlineBundle && !(missed && s.gateway.takeLarge(len(content))):
		return "reference", nil
	}
	d.Bundle = content
	return "inline", nil
}

// takeLarge reports whether a bundle of n bytes may be sent inside Desired to an agent that has missed
// it. The caller gives the place back when it is sent.
func (g *Gateway) takeLarge(n int) bool {
	if n > wire.MaxMissedBundle {
		return false
	}
	select {
	case g.large <- struct{}{}:
		return true
	default: // everybody comes back at once: they shall not take all memory
		return false
	}
}

func (s *session) sendComplete() error {
	return s.send("snapshot_complete", &agentv1.ConnectResponse{
		Frame: &agentv1.ConnectResponse_SnapshotComplete{SnapshotComplete: &agentv1.SnapshotComplete{}},
	})
}

func (s *session) send(kind string, frame *agentv1.ConnectResponse) error {
	if err := s.stream.Send(frame); err != nil {
		return err
	}
	s.gateway.metrics.frames.WithLabelValues("out", kind).Inc()
	return nil
}
