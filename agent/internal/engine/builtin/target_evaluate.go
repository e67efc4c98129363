package builtin

import (
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/fieldset"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/watch"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wait"
)

// handleObservation handles what a watch reports about an object and about itself.
func (t *target) handleObservation(o *object, seen watch.Observation) {
	if o.watch.Reason != watch.Stale || !seen.State.Failed() {
		o.watch = seen.State // a stale watch stays so until it works again
	}
	if o.watch.Failed() {
		o.mustRead = true
		if o.phase == phaseReplacing {
			o.retry.due = t.now
		}
		t.scheduleReread(o)
	} else {
		o.reread = reread{}
	}
	switch {
	case !seen.ShowsObject():
	case o.busy():
		// The request that is under way may have caused it: it is evaluated after the result.
		if o.live.later != nil {
			seen = o.live.later.Then(seen)
		}
		o.live.later = &seen
	default:
		t.evaluate(o, seen)
	}
}

// evaluate compares an observation of an object with what is known and desired.
func (t *target) evaluate(o *object, seen watch.Observation) {
	if seen.Rewound {
		o.live.version = ""
	}
	switch {
	case seen.Live != nil:
		t.evaluateLive(o, seen.Live)
	case seen.Deleted != nil:
		if !o.outdated(seen.Deleted.GetResourceVersion()) {
			t.evaluateDeleted(o, seen.Deleted)
		}
	case !o.outdated(seen.Missing):
		t.evaluateMissing(o)
	}
}

// scheduleReread schedules the next read of an object that no watch reports.
func (t *target) scheduleReread(o *object) {
	if o.unwatched() && o.reread.at.IsZero() {
		o.reread.at = t.now.Add(o.reread.backoff.NextJittered(t.engine.timing.reread, 2*t.engine.timing.reread))
	}
}

// evaluateLive evaluates the state of a live object.
func (t *target) evaluateLive(o *object, live *unstructured.Unstructured) {
	if o.outdated(live.GetResourceVersion()) || o.evaluated(live) {
		return
	}
	if o.leaving != nil {
		t.evaluateLeaving(o, live)
		return
	}
	o.update(live)
	t.noteFinish(o)
	o.unnamed = live.GetLabels()[kube.LabelAgent] != string(t.work.owner.Agent)
	t.scheduleReread(o)
	switch {
	case o.phase == phaseReplacing:
		if string(live.GetUID()) != o.record.uid {
			t.recreate(o)
		}
	case o.phase == phaseCompared:
		t.compareAgain(o, live)
	case o.phase != phaseInPlace && o.phase != phaseVerify:
		// It will be applied or tried again in any case.
	case live.GetDeletionTimestamp() != nil:
		// It is created again when it is gone.
		t.transition(o, phaseInPlace)
		o.retry.attempted = true
	case foreignHolder(live, t.id) != "":
		_, err := t.work.owner.MayApply(live, o.record.uid, func(fleet.TargetID) bool { return false })
		t.failed(o, err)
	case o.record.uid == string(live.GetUID()) && o.record.live == o.spec.ignore.Projection(live) && o.record.applied == o.spec.hash:
		if o.unnamed && !t.isDryRun() {
			t.relabel(o)
			return
		}
		t.confirm(o, live)
	default:
		t.handleDrift(o, live)
	}
}

func foreignHolder(live *unstructured.Unstructured, me fleet.TargetID) string {
	if holder := live.GetLabels()[kube.LabelTarget]; holder != string(me) {
		return holder
	}
	return ""
}

// confirm records that an object is as it was applied.
func (t *target) confirm(o *object, live *unstructured.Unstructured) {
	if !o.retry.failure.IsZero() {
		t.engine.claims.resume(o.key(), t.id)
	}
	t.transition(o, phaseInPlace)
	o.retry.attempted, o.retry.failure = true, fleet.Cause{}
	o.drift.renewed, o.drift.deviates, o.drift.reported = false, false, fleet.Cause{}
	o.live.known = live.GetLabels()[kube.LabelTarget] == string(t.id)
	if o.live.fields == nil {
		o.live.fields = t.sharedFields(fieldset.RawOwnFields(live))
	}
}

// relabel applies an object again that carries the label of the agent before it was enrolled again: no watch reports it
// until it carries the label of this agent. An object that deviates and is left so is read from time to time instead.
func (t *target) relabel(o *object) {
	t.transition(o, phaseApply)
	o.live.known = true
}

// handleDrift applies an object again that is not as it was applied last, unless drift is not corrected.
func (t *target) handleDrift(o *object, live *unstructured.Unstructured) {
	if t.leavesDrift(o) {
		t.leaveAlone(o, live)
		return
	}
	o.live.known = o.record.uid == string(live.GetUID()) && live.GetLabels()[kube.LabelTarget] == string(t.id)
	o.drift.force = o.record.applied == o.spec.hash
	o.drift.before = live
	t.heal(o)
}

// heal applies an object again, at once unless that happens very often.
func (t *target) heal(o *object) {
	now := t.now
	delay := o.drift.heals.next(now, t.engine.timing)
	t.transition(o, phaseApply)
	o.drift.healing, o.drift.delayed, o.retry.due = o.record.applied == o.spec.hash, delay > 0, now.Add(delay)
}

// evaluateGone handles an object that was deleted or that lost its label. The watch cannot tell which, so the apply
// reads it first.
func (t *target) evaluateGone(o *object) {
	switch {
	case o.leaving != nil:
		t.recheckLeaving(o)
	case o.phase == phaseReplacing:
		t.recreate(o)
	case o.phase == phaseCompared, t.leavesDrift(o) && (o.phase == phaseInPlace || o.phase == phaseVerify):
		t.transition(o, phaseCompare)
	case o.phase == phaseInPlace || o.phase == phaseVerify:
		o.live.known, o.drift.before, o.drift.force = false, nil, o.record.applied == o.spec.hash
		o.health.status, o.health.cause = fleet.HealthNotFound, wasDeleted()
		t.heal(o)
	default:
		o.live.known = false
	}
}

// wasDeleted is the cause of an object that somebody has deleted.
func wasDeleted() fleet.Cause {
	return fleet.Cause{Reason: fleet.ReasonNotFound, Message: "was deleted"}
}

// evaluateMissing handles an object that a list did not have. The object is read: the list may be older than the object,
// and versions cannot always be compared.
func (t *target) evaluateMissing(o *object) {
	switch {
	case o.leaving != nil:
		t.recheckLeaving(o)
	case o.phase == phaseReplacing:
		t.recreate(o)
	case o.phase == phaseCompared:
		t.transition(o, phaseCompare)
	case o.phase == phaseInPlace || o.phase == phaseVerify:
		t.transition(o, phaseVerify)
		o.mustRead = true
	}
}

// wasRead handles the result of a read.
func (t *target) wasRead(o *object, live *unstructured.Unstructured, err error) {
	again := o.phase == phaseRereading
	t.transition(o, phaseVerify)
	o.mustRead = false
	if t.work.ctx.Err() == nil && !apierrors.IsNotFound(err) {
		o.wasReread(t.now, t.engine.timing.reread, err)
	}
	switch {
	case t.work.ctx.Err() != nil:
		o.mustRead = true
	case err != nil && again && !apierrors.IsNotFound(err):
		t.transition(o, phaseInPlace) // it was in place before
	case apierrors.IsNotFound(err) && t.restsFinished(o, phaseInPlace):
	case apierrors.IsNotFound(err):
		t.evaluateGone(o)
	case err != nil:
		t.failed(o, err)
	case o.record.finishFrom == finishInherited:
		t.applyExisting(o)
	default:
		// Observations during the read are evaluated after it. So if this state is older than an earlier one, the database
		// of the API server was restored.
		o.live.version = ""
		t.evaluateLive(o, live)
	}
	t.evaluateLater(o)
}

// applied handles the result of an apply.
func (t *target) applied(o *object, out kube.ApplyResult, err error) {
	t.engine.gc.count(1)
	var notGone *kube.NotGoneError
	switch {
	case err == nil:
		t.succeeded(o, out)
	case errors.As(err, &notGone):
		t.awaitGone(o, notGone)
	case t.work.ctx.Err() != nil:
		// A newer version has arrived. The apply may have been carried out.
		t.transition(o, phaseApply)
		o.live.known = false
	default:
		if apierrors.IsNotFound(err) && kube.MissingNamespace(err) == "" {
			// Perhaps the kind is not served any more.
			t.engine.client.Mapper.Forget(o.ref.Group)
			t.unresolve(o)
		}
		t.failed(o, err)
	}
	t.evaluateLater(o)
}

func (t *target) succeeded(o *object, out kube.ApplyResult) {
	live := out.Live
	before, recreated := o.drift.before, o.drift.healing && o.drift.before == nil && o.record.uid != "" && o.record.uid != string(live.GetUID())
	recovered := !o.retry.failure.IsZero()
	if recovered {
		t.engine.claims.resume(o.key(), t.id)
	}
	if !o.drift.healing {
		o.health.unreadySince = time.Time{} // another manifest: its time starts again
	}
	entry := fieldset.OwnEntry(live)
	ours := entry.Fields()
	o.record.keepAnnotation = o.spec.keepAnnotation
	o.record.applied, o.record.uid, o.live.fields = o.spec.hash, string(live.GetUID()), t.sharedFields(entry.Raw())
	o.record.live, o.record.fields = o.spec.ignore.ProjectionOf(ours, live), ours.Names().Hash()
	o.drift.renewed, o.drift.deviates, o.drift.reported, o.replaced = false, false, fleet.Cause{}, ""
	t.transition(o, phaseInPlace)
	o.retry.attempted, o.live.known, o.unnamed = true, true, false
	o.retry.failure, o.retry.backoff, o.drift.force, o.drift.before, o.drift.delayed = fleet.Cause{}, wait.Backoff{}, false, nil, false
	o.update(live)
	t.noteApplied(o)
	t.reportTakeover(o, out)
	switch {
	case out.Replaced != "":
		t.event(fleet.EventNormal, fleet.ReasonReplaced, o, out.Replaced+" cannot be changed: was deleted and recreated")
	case recreated:
		t.event(fleet.EventNormal, fleet.ReasonDriftHealed, o, "was deleted and is created again")
	case o.drift.healing && before != nil && before.GetResourceVersion() != live.GetResourceVersion():
		t.event(fleet.EventNormal, fleet.ReasonDriftHealed, o, driftMessage(before, live, ours))
	}
	o.drift.healing = false
	if recovered {
		t.retryAfter(o.step)
	}
}

// noteApplied marks the inventory for a write if an apply has changed what it is to hold. A healed object has another UID if
// it was deleted; a restart before the write costs no more than an apply that changes nothing.
func (t *target) noteApplied(o *object) {
	switch {
	case t.inv.inventory.Entry(o.key()) == o.entry():
	case !o.drift.healing:
		t.inv.dirty = true
	default:
		t.inv.healed = true
	}
}

// driftMessage names the applied fields that were changed, and the managers that changed them.
func driftMessage(before, after *unstructured.Unstructured, ours fieldset.Set) string {
	paths := ours.Differing(before.Object, after.Object, 5)
	if len(paths) == 0 {
		return "was changed and is restored"
	}
	message := strings.Join(paths, ", ") + " restored"
	if who := fieldset.ChangedBy(before, paths); who != "" {
		message += fmt.Sprintf("; changed by %q", who)
	}
	return message
}

// retryAfter makes failed objects of later steps due: they may have failed for lack of this one.
func (t *target) retryAfter(step int) {
	for _, o := range t.order {
		if o.phase == phaseFailed && o.step > step {
			o.retry.due = time.Time{}
		}
	}
}

// evaluateLater evaluates what was observed during a request. It checks again whether the object may be touched, if that
// has changed in the meantime.
func (t *target) evaluateLater(o *object) {
	if o.live.recheck && !o.busy() {
		o.live.recheck = false
		t.allowed(o)
	}
	if later := o.live.later; later != nil && !o.busy() {
		o.live.later = nil
		t.evaluate(o, *later)
	}
}
