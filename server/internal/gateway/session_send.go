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

// configurationChanged is why a session ends whose agent needs another Welcome.
const configurationChanged = "the configuration of the agent changed"

// welcome answers Hello. If the agent has exactly the desired states, it sends nothing else. Otherwise the
// targets follow as soon as the session knows which states the agent has: from Hello, or from the agent's answer
// to Welcome.
func (s *session) welcome(ctx context.Context, hello *wire.Hello) error {
	err := s.gateway.connected(ctx, s.conn)
	s.markRecorded() // even after an error: control may have recorded it
	if err != nil {
		s.log().Warn("recording a connection failed", obs.Err(err))
		return status.Error(codes.Unavailable, "the server cannot accept connections now")
	}
	w := wire.Welcome{
		Session: s.conn.SessionID, AgentID: s.agent.ID, AgentName: s.agent.Name, Tenant: s.tenant.Name, Lease: s.gateway.cfg.Lease,
		Scope: s.agent.Scope, Namespaces: s.agent.Namespaces, Kinds: s.agent.Kinds, ServerVersion: s.gateway.cfg.Version,
		SendCapabilities:   !s.conn.Standby && hello.CapabilitiesHash != "" && hello.CapabilitiesHash != s.agent.Capabilities,
		AcceptCapabilities: !s.conn.Standby, AcceptApplications: !s.conn.Standby && s.agent.EngineNamespace != "",
		AcceptEndpointChecks: !s.conn.Standby && s.agent.Instance,
	}
	if s.conn.Standby { // a standby has no state and gets none
		return s.sendWelcome(w)
	}
	targets, err := s.gateway.targetsOf(ctx, s.agent, nil)
	if err != nil {
		s.log().Warn("reading the desired states of an agent failed", obs.Err(err))
		return status.Error(codes.Unavailable, "the server cannot read desired state now")
	}
	state, statuses := hashes(targets)
	same := bytes.Equal(state, hello.StateHash)
	w.SendTargetStates, w.SendStatuses = !same && hello.TargetStates == nil, !bytes.Equal(statuses, hello.StatusHash)
	if !same {
		// Before the Welcome, because the agent may answer it with TargetStates at once.
		s.schedule(func(p *pendingWork) {
			if p.held == nil {
				p.awaitingStates, p.held = w.SendTargetStates, hello.TargetStates
			}
		})
	}
	if s.agent.Instance {
		s.schedule(func(p *pendingWork) { p.environments = true })
	}
	if err := s.sendWelcome(w); err != nil || !same || s.otherEngine() {
		return err
	}
	for _, t := range targets {
		if sendable(t) {
			s.held[t.ID] = heldAfterSend(t)
		}
	}
	if slices.ContainsFunc(targets, s.credentialChanged) { // while the agent was away, perhaps
		s.schedule(func(p *pendingWork) { p.all = true })
	}
	return s.sendComplete()
}

func (s *session) sendWelcome(w wire.Welcome) error {
	return s.send("welcome", &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Welcome{Welcome: w.Proto()}})
}

// checkClock logs and records a warning when the clocks of agent and server differ.
func (s *session) checkClock(ctx context.Context, clock time.Time) {
	skew := time.Since(clock).Round(time.Second)
	if clock.IsZero() || skew.Abs() <= clockSkew {
		return
	}
	direction := "behind"
	if skew < 0 {
		direction = "ahead of"
	}
	message := fmt.Sprintf("the clock of replica %s is %s %s the clock of the server: synchronize the clocks, because times in its reports and certificate checks are wrong", s.conn.Replica, skew.Abs(), direction)
	s.log().Warn("clock skew", obs.KeyReason, message)
	_ = s.gateway.intake.events(ctx, s.agent, []control.AgentEvent{{Event: fleet.Event{ // fails only when ctx has ended
		At: time.Now(), Type: fleet.EventWarning, Reason: fleet.ReasonClockSkew, Message: message,
	}}})
}

// process does the pending work. Work that fails with a retryable error becomes pending again.
func (s *session) process(ctx context.Context) error {
	work := s.takeWork()
	if work.stored > work.confirmed {
		if err := s.send("status_stored", &agentv1.ConnectResponse{
			Frame: &agentv1.ConnectResponse_StatusStored{StatusStored: &agentv1.StatusStored{Count: work.stored}},
		}); err != nil {
			return err
		}
	}
	if work.tunnels > 0 { // first: a person waits
		if err := s.send("open_tunnels", &agentv1.ConnectResponse{
			Frame: &agentv1.ConnectResponse_OpenTunnels{OpenTunnels: &agentv1.OpenTunnels{Count: int32(min(work.tunnels, wire.MaxTunnels)), Server: s.gateway.cfg.ServerID}},
		}); err != nil {
			return err
		}
	}
	if work.goodbye != "" {
		return s.sendGoodbye(work)
	}
	if work.tokenStored != nil {
		if err := s.handleTokenStored(ctx, *work.tokenStored); err != nil {
			return s.requeue(err, work)
		}
		work.tokenStored = nil
	}
	if work.rotate {
		if err := s.rotate(ctx); err != nil {
			return s.requeue(err, work)
		}
		work.rotate = false
	}
	return s.requeue(s.deliver(ctx, work), work)
}

func (s *session) takeWork() pendingWork {
	s.mu.Lock()
	defer s.mu.Unlock()
	work := s.pendingWork
	if s.conn.Standby { // other goroutines schedule work for the leader
		work = pendingWork{tunnels: work.tunnels, goodbye: work.goodbye, reconnectWithin: work.reconnectWithin}
	}
	s.pendingWork = pendingWork{stored: work.stored, confirmed: work.stored, awaitingStates: work.awaitingStates && work.held == nil}
	switch {
	case s.pendingWork.awaitingStates: // send nothing before the session knows what the agent has
		s.pendingWork.dirty, s.pendingWork.all = work.dirty, work.all
		work.dirty, work.all = nil, false
	case work.held != nil:
		s.held = heldTargets(work.held)
		work.held, work.all, work.complete = nil, true, true
	}
	return work
}

// requeue makes work pending again if err is retryable.
func (s *session) requeue(err error, work pendingWork) error {
	if !errors.As(err, new(*retryableError)) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.pendingWork
	p.rotate = p.rotate || work.rotate
	if p.tokenStored == nil {
		p.tokenStored = work.tokenStored
	}
	p.all = p.all || work.all
	p.environments = p.environments || work.environments
	p.complete = p.complete || work.complete
	if p.dirty == nil {
		p.dirty = map[fleet.TargetID]time.Time{}
	}
	maps.Copy(p.dirty, work.dirty) // older, so its times replace newer ones
	return err
}

func (s *session) sendGoodbye(work pendingWork) error {
	if err := s.send("goodbye", &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Goodbye{
		Goodbye: &agentv1.Goodbye{Reason: work.goodbye, ReconnectWithinMilliseconds: work.reconnectWithin.Milliseconds()},
	}}); err != nil {
		return err
	}
	return errGoodbye
}

// deliver sends the newest states of the targets that the work names and that the agent lacks.
func (s *session) deliver(ctx context.Context, work pendingWork) error {
	if s.otherEngine() {
		return nil
	}
	if work.environments || work.all {
		// Before the targets, which name them.
		if err := s.sendEnvironments(ctx); err != nil {
			return err
		}
	}
	var ids []fleet.TargetID
	switch {
	case work.all:
	case len(work.dirty) > 0:
		ids = slices.Sorted(maps.Keys(work.dirty))
	default:
		return nil
	}
	targets, err := s.gateway.targetsOf(ctx, s.agent, ids)
	if errors.Is(err, control.ErrAgentChanged) {
		// A newer state must not meet an older configuration: the agent could delete what the newer one protects.
		s.scheduleGoodbye(configurationChanged, 0)
		return nil
	}
	if err != nil {
		return retryable("reading desired state: %w", err)
	}
	// A target that cannot be sent now does not delay the other targets of this agent.
	var postponed error
	for _, t := range targets {
		err := s.deliverOne(ctx, t, work.complete)
		if errors.As(err, new(*retryableError)) {
			postponed = errors.Join(postponed, err)
			continue
		}
		if err != nil {
			return err
		}
		if since, ok := work.dirty[t.ID]; ok && !since.IsZero() {
			s.gateway.metrics.changeToSent.Observe(time.Since(since).Seconds())
		}
	}
	if postponed != nil {
		return postponed
	}
	if work.complete {
		return s.sendComplete()
	}
	return nil
}

// deliverOne sends one target. missed means that the agent was away when it changed.
func (s *session) deliverOne(ctx context.Context, t control.AgentTarget, missed bool) error {
	held, known := s.held[t.ID]
	switch nextAction(t, held, known) {
	case actionNone:
		if !s.credentialChanged(t) {
			return nil
		}
	case actionReportAhead:
		return s.reportAhead(ctx, t, held.version)
	}
	d := wire.Desired{Target: t.ID, Tenant: t.Tenant, Deployment: t.DeploymentName, State: t.Desired}
	var form string
	var err error
	if t.Source != nil {
		form = "source"
		d.Source, err = s.source(ctx, t)
	} else {
		form, err = s.inline(ctx, &d, t.TenantID, missed)
	}
	if err != nil {
		return err
	}
	if len(d.Bundle) > wire.MaxInlineBundle {
		defer func() { <-s.gateway.slots.largeBundles }()
	}
	if form == "reference" {
		s.setReference(t.ID, reference{digest: d.State.Digest, owner: t.TenantID})
	} else {
		s.setReference(t.ID, reference{})
	}
	if err := s.send("desired", &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Desired{Desired: d.Proto()}}); err != nil {
		return err
	}
	sent := heldAfterSend(t)
	sent.credential = s.credentialOf(t)
	s.held[t.ID] = sent
	s.gateway.activity.Add(1)
	s.gateway.metrics.desired.WithLabelValues(form).Inc()
	s.log().Info("desired state sent", obs.KeyTarget, string(t.ID), obs.KeyDeployment, t.DeploymentName,
		obs.KeyGeneration, t.Desired.Generation, obs.KeyCommit, t.Desired.Commit)
	return nil
}

// reportAhead reports to control, once per version, that the agent has a newer version of a target than the
// server.
func (s *session) reportAhead(ctx context.Context, t control.AgentTarget, has fleet.Version) error {
	if last, ok := s.reportedAhead[t.ID]; ok && last == has {
		return nil
	}
	s.log().Warn("agent has a newer version of a target than the server", obs.KeyTarget, string(t.ID), obs.KeyDeployment, t.DeploymentName, obs.KeyGeneration, has.Generation)
	if err := s.gateway.ahead(ctx, s.agent, t.ID, has); err != nil {
		return retryable("recording that an agent is ahead: %w", err)
	}
	if s.reportedAhead == nil {
		s.reportedAhead = map[fleet.TargetID]fleet.Version{}
	}
	s.reportedAhead[t.ID] = has
	return nil
}

// inline adds the bundle to d if it is small enough, and returns the form in which the objects travel.
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
		// The agent may have the bundle. If not, its fetch fails, and the status of the target reports that.
		s.log().Error("the bundle of a desired state is missing", obs.KeyTarget, string(d.Target), obs.KeyDigest, d.State.Digest)
		return "reference", nil
	case err != nil:
		return "", retryable("reading bundle %s: %w", d.State.Digest, err)
	case len(content) > wire.MaxInlineBundle && !(missed && s.gateway.acquireLargeBundle(len(content))):
		return "reference", nil
	}
	d.Bundle = content
	return "inline", nil
}

// acquireLargeBundle reports whether a bundle of n bytes may be sent inside Desired to an agent that missed the
// change. The caller frees the slot after sending.
func (g *Gateway) acquireLargeBundle(n int) bool {
	if n > wire.MaxMissedBundle {
		return false
	}
	select {
	case g.slots.largeBundles <- struct{}{}:
		return true
	default: // many agents reconnect at once: limit the memory
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
