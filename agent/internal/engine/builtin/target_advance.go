package builtin

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// resolveGrace is how long applying waits for slow lookups of kinds, so that the inventory is widened
// once and for all. After that, what is known goes ahead.
const resolveGrace = time.Second

// advance starts whatever can be started now. It is called after every event and decides anew
// from what is known each time.
func (t *target) advance() {
	if t.stopped.any() {
		t.engine.crds.Want(t, false)
		return
	}
	if t.work.ctx == nil || t.work.ctx.Err() != nil || t.end.done || t.work.invalid != "" || t.work.client == nil {
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
	t.engine.crds.Want(t, s.unknown)
	if s.resolving > 0 && now.Before(t.work.begun.Add(resolveGrace)) {
		return
	}
	if now.Before(t.inv.writing.due) || !t.widenInventory() {
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
		t.saveInventory() // the wait may be long, and a restart shall not apply everything again
	}
}

// progress is one look over all objects.
type progress struct {
	resolving   int // kinds being looked up for the first time
	unattempted int // desired, and not tried yet for this version
	later       int // of these, wait for others to be ready
	failed      int
	waiting     int // desired, tried, and being looked at or put right this moment
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

// stuck reports whether nothing is left to try until something gets ready.
func (s progress) stuck() bool { return s.later > 0 && s.later == s.unattempted && s.waiting == 0 }

// count counts an object that is on its way to be in place, or waits for others before that.
func (s *progress) count(o *object, waits bool) {
	if o.retry.attempted {
		s.holdBack(o)
		if !o.drift.delayed && o.retry.failure == "" {
			s.waiting++
		}
		if o.retry.failure != "" {
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

// holdBack lets no later step start before an object is applied whose kind comes with the bundle and is not served yet: a webhook
// that is registered before it would hold it back.
func (s *progress) holdBack(o *object) {
	if o.kind.expected && o.record.applied == "" && o.retry.failure == "" {
		s.gate = min(s.gate, o.step)
	}
}

// retryFailed makes what failed ready to be tried again when it is due.
func (t *target) retryFailed(now time.Time) {
	for _, o := range t.order {
		blind := o.phase == phaseReplacing && !o.retry.due.IsZero()
		if o.phase != phaseFailed && !blind || now.Before(o.retry.due) {
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

// widenInventory makes sure that everything that is about to be applied is in the inventory. It reports
// whether applying may go on.
func (t *target) widenInventory() bool {
	missing := false
	for _, o := range t.order {
		if o.leaving == nil && o.kind.resolved && !o.record.listed && o.phase == phaseApply {
			o.record.listed, missing = true, true
		}
	}
	if !missing {
		return true
	}
	if t.saveInventory() {
		return true
	}
	for _, o := range t.order {
		if o.leaving == nil && t.inv.inventory.Entry(o.key()) == (inventory.Entry{}) {
			o.record.listed = false
		}
	}
	return false
}

// record is what the inventory shall hold.
func (t *target) record() inventory.Record {
	rec := inventory.Record{
		Target: t.id, Tenant: t.work.desired.Tenant, Deployment: t.work.desired.Deployment,
		Version: t.work.desired.State.Version, Digest: t.inv.digest, Base: t.nextBase(), Entries: map[inventory.Key]inventory.Entry{},
	}
	for _, o := range t.order {
		if o.record.listed {
			rec.Entries[o.key()] = o.entry()
		}
	}
	return rec
}

// offlineCopyDone reports whether the inventory may name the version that is worked on: it is kept for when the server
// is away, or cannot be. Until then nothing is written down; the first call asks for it.
func (t *target) offlineCopyDone() bool {
	if t.work.desired.Keep == nil || t.inv.inventory.Version() == t.work.desired.State.Version {
		return true
	}
	if t.work.offlineCopy == nil {
		keeping, ctx := t.work.desired.Keep(), t.work.ctx
		t.work.offlineCopy = keeping
		t.engine.work.Go(func() {
			select {
			case <-keeping:
			case <-ctx.Done():
			}
			t.signal()
		})
	}
	select {
	case <-t.work.offlineCopy:
		return true
	default:
		return false
	}
}

// inventoryDue reports whether the inventory is to be written now.
func (t *target) inventoryDue() bool {
	return t.inv.dirty || !t.inv.healedBy.IsZero() && !t.now.Before(t.inv.healedBy)
}

// saveInventory writes the inventory and reports whether that worked. What has to wait for it waits.
func (t *target) saveInventory() bool {
	if !t.offlineCopyDone() {
		return false
	}
	ctx, cancel := context.WithTimeout(t.work.ctx, t.engine.timing.requests.Request)
	defer cancel()
	err := t.reloadInventory(ctx)
	if err == nil {
		err = t.inv.inventory.Save(ctx, t.record())
	}
	if err == nil {
		t.inv.dirty, t.inv.healedBy, t.inv.writing = false, time.Time{}, saving{}
		return true
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		// Somebody else has written it. What that was decides whether to go on.
		if again := t.reloadInventory(ctx); again != nil {
			err = again
		}
	}
	if t.inv.inventory.Version().Compare(t.work.desired.State.Version) > 0 {
		t.yieldToReplica()
		return false
	}
	if t.work.ctx.Err() == nil {
		t.log.Warn("the inventory could not be written", "error", err)
		t.inv.writing.failure = err.Error()
		t.inv.writing.due = time.Now().Add(t.inv.writing.backoff.Next(t.engine.timing.retryFirst, t.engine.timing.forbiddenMax))
	}
	return false
}

// reloadInventory reads the inventory again after a write that may or may not have happened. What it names and is not known here is
// looked at in the next pass, which nothing else would cause.
func (t *target) reloadInventory(ctx context.Context) error {
	if !t.inv.inventory.Stale() {
		return nil
	}
	if err := t.inv.inventory.Reload(ctx); err != nil {
		return err
	}
	if t.inv.inventory.Version().Compare(t.work.desired.State.Version) > 0 {
		return inventory.ErrSuperseded
	}
	t.addRecorded(t.inv.inventory.Record())
	t.sort()
	t.signal()
	return nil
}

// yieldToReplica ends the work on a target that another replica of this agent has gone on with, until
// something newer is desired here too.
func (t *target) yieldToReplica() {
	t.stopped.newerReplica = true
	t.log.Warn("another replica of this agent works on a newer version", "generation", t.inv.inventory.Version().Generation)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inbox.minVersion = t.inv.inventory.Version()
	t.inbox.cancel()
}

// startApplies starts as many applies as may run at once.
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

// startable reports whether nothing but a look is left to do before an object is applied.
func (t *target) startable(o *object, now time.Time, s progress) bool {
	return o.phase == phaseApply && o.kind.resolved && o.record.listed && o.step <= s.gate && !now.Before(o.retry.due) && t.waitsFor(o) == nil
}

func (t *target) startApply(o *object) {
	if !t.allowed(o) {
		t.signal() // others may have waited for it to be on its way
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

// job is what applying an object needs.
func (t *target) job(o *object) kube.ApplyRequest {
	key, deployment := o.key(), t.work.owner.Deployment
	owner := t.work.owner
	owner.Adopt = owner.Adopt && !o.spec.optional
	return kube.ApplyRequest{
		Owner: owner, Manifest: *o.spec.manifest, Ref: o.ref, Mapping: o.kind.mapping, Policy: t.work.desired.State.Policy, Rules: o.spec.ignore,
		// What may differ has to be read to be left alone.
		UID: o.record.uid, Known: o.live.known && !o.watch.Failed() && len(o.spec.ignore) == 0 || !o.existence.absentAt.IsZero(), AbsentAt: o.existence.absentAt,
		KeepAnnotation: o.record.keepAnnotation, Force: o.drift.force, YieldReplicas: o.health.autoscaler != "", Replacing: o.replaced, Applied: o.live.fields,
		Abandoned:    func(holder fleet.TargetID) bool { return t.engine.claims.abandoned(key, holder) },
		Outlived:     func(holder fleet.TargetID) bool { return t.engine.outlived(holder, key, deployment) },
		HasInventory: t.engine.store.Holds,
		KeepReason:   t.replaceHold(o.ref),
	}
}

// startReads reads those objects that the watch will not tell of.
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
