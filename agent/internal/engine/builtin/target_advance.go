package builtin

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// resolveGrace is how long applying waits for slow lookups of kinds, so that the inventory is widened once. After that,
// the objects whose kinds are known are applied.
const resolveGrace = time.Second

// advance starts every request that can start now. It runs after every event and decides from the current state each
// time.
func (t *target) advance() {
	if t.stopped.any() {
		t.engine.watchers.definitions.Want(t, false)
		return
	}
	if t.work.ctx == nil || t.work.ctx.Err() != nil || t.end.done || !t.work.invalid.IsZero() || t.work.client == nil {
		return
	}
	if t.work.desired.State.Detached {
		t.detach()
		return
	}
	if t.isDryRun() {
		t.dryRun()
		return
	}
	now := t.now
	t.retryFailed(now)
	t.findBarrier()
	t.resolve()
	s := t.progress()
	t.engine.watchers.definitions.Want(t, s.unknown)
	if s.resolving > 0 && now.Before(t.work.begun.Add(resolveGrace)) {
		return
	}
	if now.Before(t.inv.due) || !t.widenInventory() {
		return
	}
	if s.unattempted > 0 {
		t.offlineCopyDone() // it takes about as long as the first applies
	}
	t.checkExistence(now, s)
	t.startApplies(now, s)
	t.startReads()
	t.startCompares()
	switch {
	case s.unattempted == 0:
		t.settle(now, s)
	case s.stuck() && t.inflight == 0 && t.inventoryDue():
		t.saveInventory() // the wait may be long, and a restart must not apply everything again
	}
}

// progress counts the objects of a target by what they wait for.
type progress struct {
	resolving   int // kinds being looked up for the first time
	unattempted int // desired, and not tried yet for this version
	later       int // of these, wait for others to be ready
	failed      int
	waiting     int // desired, tried, and being read or restored at this moment
	leaving     int // not desired any more
	gate        int // no step above this one may start
	unknown     bool
}

func (t *target) progress() progress {
	s := progress{gate: int(^uint(0) >> 1)}
	for _, o := range t.order {
		if o.leaving != nil {
			s.leaving++
			continue
		}
		s.unknown = s.unknown || o.kind.unknown
		switch o.phase {
		case phaseInPlace, phaseRereading, phaseCompared:
		case phaseFailed:
			s.failed++
			s.holdBack(o)
		default:
			s.count(o, t.waitsFor(o) != nil)
		}
	}
	return s
}

// stuck reports whether everything that is left to try waits for other objects to be ready.
func (s progress) stuck() bool { return s.later > 0 && s.later == s.unattempted && s.waiting == 0 }

// count counts an object that is not in place yet.
func (s *progress) count(o *object, waits bool) {
	if o.retry.attempted {
		s.holdBack(o)
		if !o.drift.delayed && o.retry.failure.IsZero() {
			s.waiting++
		}
		if !o.retry.failure.IsZero() {
			s.failed++
		}
		return
	}
	s.unattempted++
	if waits {
		s.later++
		return
	}
	if o.phase == phaseResolve {
		s.resolving++
	}
	if o.phase == phaseApply || o.phase == phaseApplying {
		s.gate = min(s.gate, o.step)
	}
}

// holdBack starts no later step before an object is applied whose kind comes with the bundle and is not served yet: a
// webhook that is registered before the object would block it.
func (s *progress) holdBack(o *object) {
	if o.kind.expected && o.record.applied == "" && o.retry.failure.IsZero() {
		s.gate = min(s.gate, o.step)
	}
}

// retryFailed makes failed objects ready for their next attempt when it is due.
func (t *target) retryFailed(now time.Time) {
	for _, o := range t.order {
		unwatched := o.phase == phaseReplacing && !o.retry.due.IsZero()
		if o.phase != phaseFailed && !unwatched || now.Before(o.retry.due) {
			continue
		}
		switch {
		case !o.kind.resolved:
			t.transition(o, phaseResolve)
		case o.record.applied == o.spec.hash && o.record.applied != "" && (t.leavesDrift(o) || o.record.finished != ""):
			t.transition(o, phaseVerify) // it could not be read, and is not to be restored
			o.mustRead = true
		default:
			t.transition(o, phaseApply)
		}
	}
}

// startApplies starts as many applies as may run at the same time.
func (t *target) startApplies(now time.Time, s progress) {
	for _, o := range t.order {
		if t.inflight >= t.maxInflight() {
			return
		}
		if !o.existence.pending() && t.startable(o, now, s) {
			t.startApply(o)
		}
	}
}

// startable reports whether an object may be applied now, apart from the check whether it exists.
func (t *target) startable(o *object, now time.Time, s progress) bool {
	return o.phase == phaseApply && o.kind.resolved && o.record.listed && o.step <= s.gate && !now.Before(o.retry.due) && t.waitsFor(o) == nil
}

func (t *target) startApply(o *object) {
	if !t.allowed(o) {
		t.signal() // others may wait for it
		return
	}
	if t.inheritFinish(o) {
		t.signal()
		return
	}
	job := t.job(o)
	t.transition(o, phaseApplying)
	o.record.applied, o.existence.absentAt = "", time.Time{}
	t.start(func(ctx context.Context) func() {
		out, err := t.work.client.Apply(ctx, job)
		return func() { t.applied(o, out, err) }
	})
}

// job makes the request that applies an object.
func (t *target) job(o *object) kube.ApplyRequest {
	key, deployment := o.key(), t.work.owner.Deployment
	owner := t.work.owner
	owner.Adopt = owner.Adopt && !o.spec.optional
	return kube.ApplyRequest{
		Owner: owner, Manifest: *o.spec.manifest, Ref: o.ref, Mapping: o.kind.mapping, Policy: t.work.desired.State.Policy, Rules: o.spec.ignore,
		// Fields to ignore are read first, so that the apply preserves them.
		UID: o.record.uid, Known: o.live.known && !o.watch.Failed() && len(o.spec.ignore) == 0 || !o.existence.absentAt.IsZero(), AbsentAt: o.existence.absentAt,
		KeepAnnotation: o.record.keepAnnotation, Force: o.drift.force, YieldReplicas: o.health.autoscaler != "", Replacing: o.replaced, Applied: o.live.fields, AppliedNames: o.record.fields,
		Abandoned:    func(holder fleet.TargetID) bool { return t.engine.claims.abandoned(key, holder) },
		Outlived:     func(holder fleet.TargetID) bool { return t.engine.outlived(holder, key, deployment) },
		HasInventory: t.engine.store.Holds,
		KeepCause:    t.replaceHold(o.ref),
	}
}

// startReads reads the objects that the watch will not report.
func (t *target) startReads() {
	for _, o := range t.order {
		if t.inflight >= t.maxInflight() {
			return
		}
		switch {
		case o.phase == phaseVerify && o.mustRead:
			t.startRead(o, phaseReading)
		case o.rereadable() && !t.now.Before(o.reread.at):
			t.startRead(o, phaseRereading)
		}
	}
}

func (t *target) startRead(o *object, as phase) {
	t.transition(o, as)
	m, ref := o.kind.mapping, o.ref
	t.start(func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, t.engine.timing.requests.Request)
		defer cancel()
		live, err := t.work.client.Read(ctx, m, ref)
		return func() { t.wasRead(o, live, err) }
	})
}
