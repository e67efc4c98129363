package builtin

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// grace is how long applying waits for slow lookups of kinds, so that the inventory is widened
// once and for all. After that, what is known goes ahead.
const grace = time.Second

// advance starts whatever can be started now. It is called after every event and decides anew
// from what is known each time.
func (t *target) advance() {
	if t.ctx == nil || t.ctx.Err() != nil || t.gone || t.ousted {
		return
	}
	if t.desired.State.Detached {
		t.detach()
		return
	}
	now := t.now
	t.wakeFailed(now)
	t.resolve()
	s := t.survey()
	t.engine.crds.want(t, s.unknown)
	if s.resolving > 0 && now.Before(t.begun.Add(grace)) {
		return
	}
	if now.Before(t.saving.due) || !t.widen() {
		return
	}
	t.startApplies(now, s)
	t.startReads()
	if s.unattempted == 0 {
		t.settle(now, s)
	}
}

// survey is one look over all objects.
type survey struct {
	resolving   int // kinds being looked up for the first time
	unattempted int // desired, and not tried yet for this version
	failed      int
	waiting     int // desired, tried, and being looked at or put right this moment
	leaving     int // not desired any more
	gate        int // no step above this one may start
	unknown     bool
}

func (t *target) survey() survey {
	s := survey{gate: int(^uint(0) >> 1)}
	for _, o := range t.order {
		if o.manifest == nil {
			s.leaving++
			continue
		}
		s.unknown = s.unknown || o.unknown
		switch o.phase {
		case phaseInPlace:
		case phaseFailed:
			s.failed++
		case phaseReading:
			if o.reviewing {
				continue // in place, as far as anybody knows
			}
			s.pass(o)
		default:
			s.pass(o)
		}
	}
	return s
}

// pass counts an object that is on its way to be in place.
func (s *survey) pass(o *object) {
	if o.attempted {
		if !o.delayed && o.failure == "" {
			s.waiting++
		}
		if o.failure != "" {
			s.failed++
		}
		return
	}
	s.unattempted++
	if o.phase == phaseResolve {
		s.resolving++
	}
	if o.phase == phaseApply || o.phase == phaseApplying {
		s.gate = min(s.gate, o.step)
	}
}

// wakeFailed makes what failed ready to be tried again when it is due.
func (t *target) wakeFailed(now time.Time) {
	for _, o := range t.order {
		if o.phase != phaseFailed || now.Before(o.due) {
			continue
		}
		o.phase = phaseApply
		if !o.resolved {
			o.phase = phaseResolve
		}
	}
}

// widen makes sure that everything that is about to be applied is in the inventory. It reports
// whether applying may go on.
func (t *target) widen() bool {
	missing := false
	for _, o := range t.order {
		if o.manifest != nil && o.resolved && !o.listed && o.phase == phaseApply {
			o.listed, missing = true, true
		}
	}
	if !missing {
		return true
	}
	if t.save() {
		return true
	}
	for _, o := range t.order {
		if o.manifest != nil && t.book.Entry(o.key) == (inventory.Entry{}) {
			o.listed = false
		}
	}
	return false
}

// record is what the inventory shall hold.
func (t *target) record() inventory.Record {
	rec := inventory.Record{
		Target: t.id, Tenant: t.desired.Tenant, Deployment: t.desired.Deployment,
		Version: t.desired.State.Version, Digest: t.digest, Entries: map[inventory.Key]inventory.Entry{},
	}
	for _, o := range t.order {
		if o.listed {
			rec.Entries[o.key] = o.entry()
		}
	}
	return rec
}

// save writes the inventory and reports whether that worked. What has to wait for it waits.
func (t *target) save() bool {
	ctx, cancel := context.WithTimeout(t.ctx, t.engine.timing.request)
	defer cancel()
	err := t.reload(ctx)
	if err == nil {
		err = t.book.Save(ctx, t.record())
	}
	if err == nil {
		t.dirty, t.saving = false, saving{}
		return true
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		// Somebody else has written it. What that was decides whether to go on.
		if again := t.reload(ctx); again != nil {
			err = again
		}
	}
	if t.book.Version().Compare(t.desired.State.Version) > 0 {
		t.oust()
		return false
	}
	if t.ctx.Err() == nil {
		t.log.Warn("the inventory could not be written", "error", err)
		t.saving.failure = err.Error()
		t.saving.due = time.Now().Add(t.saving.backoff.next(t.engine.timing.retryFirst, t.engine.timing.forbiddenMax))
	}
	return false
}

// reload reads the inventory again after a write that may or may not have happened.
func (t *target) reload(ctx context.Context) error {
	if !t.book.Stale() {
		return nil
	}
	if err := t.book.Reload(ctx); err != nil {
		return err
	}
	if t.book.Version().Compare(t.desired.State.Version) > 0 {
		return inventory.ErrSuperseded
	}
	t.remember(t.book.Record())
	t.sort()
	return nil
}

// oust ends the work on a target that another replica of this agent has gone on with, until
// something newer is desired here too.
func (t *target) oust() {
	t.ousted = true
	t.log.Warn("another replica of this agent works on a newer version", "generation", t.book.Version().Generation)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inbox.held = t.book.Version()
	t.inbox.cancel()
}

// startApplies starts as many applies as may run at once.
func (t *target) startApplies(now time.Time, s survey) {
	for _, o := range t.order {
		if t.inflight >= parallelism {
			return
		}
		if o.phase == phaseApply && o.resolved && o.listed && o.step <= s.gate && !now.Before(o.due) {
			t.startApply(o)
		}
	}
}

func (t *target) startApply(o *object) {
	key := o.key
	job := applyJob{
		owner: t.owner, manifest: *o.manifest, ref: o.ref, mapping: o.mapping,
		uid: o.uid, known: o.known && !o.blind, force: o.force, yield: o.scaler != "", fields: o.fields,
		abandoned: func(holder fleet.TargetID) bool { return t.engine.claims.abandoned(key, holder) },
		holds:     t.engine.store.Holds, orphan: new(fleet.AgentID),
	}
	o.phase, o.applied = phaseApplying, ""
	t.start(func(ctx context.Context) func() {
		live, err := t.engine.cluster.apply(ctx, job)
		return func() {
			if agent := *job.orphan; agent != "" && err == nil {
				t.event(fleet.EventNormal, "TakenOver", o, fmt.Sprintf("was taken over from agent %s, which has no inventory here", agent))
			}
			t.applied(o, live, err)
		}
	})
}

// startReads reads those objects that the watch will not tell of.
func (t *target) startReads() {
	for _, o := range t.order {
		if t.inflight >= parallelism {
			return
		}
		switch {
		case o.phase == phaseVerify && o.mustRead:
			t.startRead(o)
		case o.reviewable() && !t.now.Before(o.review):
			o.reviewing = true
			t.startRead(o)
		}
	}
}

func (t *target) startRead(o *object) {
	o.phase = phaseReading
	m, ref := o.mapping, o.ref
	t.start(func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, t.engine.timing.request)
		defer cancel()
		live, err := t.engine.cluster.read(ctx, m, ref)
		return func() { t.wasRead(o, live, err) }
	})
}
