package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wait"
)

// settle runs when every desired object was tried: it prunes, and writes the inventory.
func (t *target) settle(now time.Time, s progress) {
	if s.waiting > 0 {
		return // the rest is decided after these results
	}
	if s.failed == 0 && !t.work.desired.State.Tombstone && t.inv.digest != t.work.desired.State.Digest {
		t.inv.digest, t.inv.dirty = t.work.desired.State.Digest, true
	}
	if s.leaving > 0 {
		if t.work.desired.State.Tombstone && !t.recordEnd() || !t.offlineCopyDone() {
			return // what is deleted now must not come back after a restart
		}
		t.prune(now, s)
	}
	if t.inflight > 0 {
		return
	}
	if t.work.desired.State.Tombstone && len(t.objects) == 0 && len(t.inv.inventory.Damaged()) == 0 {
		t.finish()
	} else if t.inventoryDue() {
		t.saveInventory()
	}
}

// prune deletes the objects that are not desired any more, the last step first, as far as the plan allows.
func (t *target) prune(now time.Time, s progress) {
	t.claimsSeen = t.engine.claims.releaseCount()
	gone, plan := t.plan(s)
	for _, o := range t.order {
		if o.leaving != nil && !o.deletable() {
			o.leaving.confirmable = false
			t.keepObject(o)
		}
	}
	remove := gone[:0]
	for _, o := range gone {
		decision := plan.Decide(o.ref, o.record.hold)
		// A confirmed object that cannot be deleted yet is listed with its reason while it exists.
		o.leaving.waits, o.leaving.confirmable = decision.Waiting, decision.Confirmable || decision.Confirmed
		if decision.Hold != "" && o.record.hold == "" {
			// Written before the inventory shrinks: the rest of a change that was held never looks like a small change.
			o.record.hold, t.inv.dirty = decision.Hold, true
		}
		if !decision.Cause.IsZero() {
			t.keep(o, decision.Cause, decision.Protected)
		} else if why := cmp.Or(t.engine.namespaceInUse(o.ref, t.id), o.occupiedAt(t.now)); !why.IsZero() {
			t.postpone(o, why)
		} else {
			o.endWait()
			remove = append(remove, o)
		}
	}
	t.removeLast(now, t.withoutOccupied(remove))
}

// withoutOccupied leaves out Namespaces that contain a kept object of this target.
func (t *target) withoutOccupied(remove []*object) []*object {
	if !slices.ContainsFunc(remove, func(o *object) bool { return kube.IsNamespace(o.ref) }) {
		return remove
	}
	kept, going := map[string]*object{}, map[*object]bool{}
	for _, o := range remove {
		going[o] = true
	}
	for _, o := range t.order {
		if o.leaving != nil && !going[o] {
			kept[o.ref.Namespace] = o
		}
	}
	return slices.DeleteFunc(remove, func(o *object) bool {
		in := kept[o.ref.Name]
		if !kube.IsNamespace(o.ref) || in == nil {
			return false
		}
		t.postpone(o, fleet.Cause{Reason: fleet.ReasonNotEmpty, Message: in.ref.String() + " is kept in it"})
		return true
	})
}

// plan makes the plan for the leaving objects, and lists those that it decides on. The list is valid until the next
// call.
func (t *target) plan(s progress) ([]*object, inventory.Plan) {
	edition, desired := t.engine.edition(), 0
	gone := t.cache.leaving[:0]
	for _, o := range t.order {
		if o.leaving == nil {
			desired++
			continue
		}
		t.setBounds(o, edition)
		o.leaving.claimedBy = t.engine.claims.other(o.key(), t.id)
		o.leaving.handOver = t.handOver(o.ref)
		if o.deletable() {
			gone = append(gone, o)
		}
	}
	t.cache.leaving = gone
	state := t.work.desired.State
	return gone, inventory.NewPlan(inventory.Policy{
		Whole: state.Tombstone || t.work.whole,
		Prune: state.Tombstone || state.Policy.Prune, AllowEmpty: state.Tombstone || state.Policy.AllowEmpty,
		Hold: state.HoldPrune, Unsettled: s.failed, Damaged: t.inv.inventory.Damaged(), Pending: t.engine.isPending(),
		Consent: state.Consent, Tombstone: state.Tombstone, HoldProtected: state.HoldProtected, Limit: state.Policy.PruneLimit,
		Total: t.inv.base, Desired: desired, Gone: sizeOfChange(gone), Confirmed: state.Confirmed,
	})
}

// keepObject keeps an object on which the plan does not decide.
func (t *target) keepObject(o *object) {
	switch {
	case o.phase == phaseRemoving:
	case o.refused():
		t.transition(o, phaseKept)
		o.leaving.cause = o.leaving.bounds.refusal
		t.holdRefused(o)
	case o.leaving.claimedBy != "":
		t.postpone(o, claimed(o.leaving.claimedBy))
	case !o.leaving.handOver.IsZero():
		t.awaitHandOver(o)
	case !o.leaving.bounds.beyond.IsZero():
		t.keep(o, o.leaving.bounds.beyond, true)
	default:
		t.keep(o, o.leaving.keptBy, true)
	}
}

// postpone keeps an object while the claim of another target is in the way. The watch reports a new owner, and claims
// report a released claim; the attempt from time to time is a backstop.
func (t *target) postpone(o *object, why fleet.Cause) {
	o.leaving.waits = true
	t.awaitClaims()
	ready := !t.now.Before(o.retry.due)
	t.keep(o, why, false)
	if ready && o.phase == phaseKept {
		o.retry.due = t.now.Add(o.retry.backoff.NextJittered(t.engine.timing.retryFirst, t.engine.timing.retryMax))
	}
}

// awaitClaims has the target wake up when a claim is released after it was decided what is deleted.
func (t *target) awaitClaims() { t.engine.claims.await(t.id, t.claimsSeen) }

// removeLast deletes the objects of the last step. Each step is gone before the step before it is deleted.
func (t *target) removeLast(now time.Time, remove []*object) {
	last := -1
	for _, o := range remove {
		last = max(last, o.step)
	}
	for _, o := range remove {
		o.leaving.cause = fleet.Cause{}
		// A terminating object is checked again when its watch reports it, or when it is due.
		ready := o.phase == phaseLeaving || o.phase == phaseKept || o.phase == phaseTerminating && !o.retry.due.IsZero()
		if o.step == last && ready && !now.Before(o.retry.due) && t.inflight < t.maxInflight() {
			t.startRemove(o, kube.IntentDelete)
		}
	}
}

// keep keeps a leaving object. A protected one is released when the deployment is deleted, unless the tombstone holds
// protected kinds.
func (t *target) keep(o *object, why fleet.Cause, protected bool) {
	if o.phase == phaseRemoving {
		return
	}
	if o.phase != phaseTerminating {
		t.transition(o, phaseKept)
	}
	o.leaving.cause = why
	if t.now.Before(o.retry.due) || t.inflight >= t.maxInflight() {
		return
	}
	switch {
	case t.work.desired.State.Tombstone && protected && !t.engine.isPending() && !t.holdsProtected():
		t.startRemove(o, kube.IntentRelease)
	case !o.live.known:
		t.startRemove(o, kube.IntentCheck) // not seen since a restart: it may be gone
	default:
		o.retry.failure = fleet.Cause{} // of a read or a deletion that is not tried again: a watch shows the object
	}
}

func (t *target) startRemove(o *object, want kube.Intent) {
	key, ref, uids, handOver := o.key(), o.ref, t.desiredUIDs(), t.handOver(o.ref)
	job := kube.RemoveRequest{Owner: t.work.owner, Ref: o.ref, UID: o.record.uid, Intent: want, KeepAnnotation: o.record.keepAnnotation, WholeDeployment: t.work.desired.State.Tombstone, FoundEmpty: !o.leaving.emptyAt.IsZero(), Propagation: t.work.desired.State.Policy.Propagation, StillDesired: func(uid string) bool { return uids[uid] }, KeepCause: func() fleet.Cause {
		if why := cmp.Or(t.wantedElsewhere(key, handOver), t.refusal(ref)); !why.IsZero() || want != kube.IntentDelete {
			return why
		}
		return cmp.Or(t.beyond(ref), t.engine.namespaceInUse(ref, t.id))
	}}
	t.transition(o, phaseRemoving)
	o.live.known = false
	t.start(func(ctx context.Context) func() {
		out, err := t.work.client.Remove(ctx, job)
		return func() { t.removed(o, want, out, err) }
	})
}

// removed handles the result of a removal.
func (t *target) removed(o *object, want kube.Intent, out kube.RemoveResult, err error) {
	t.transition(o, phaseLeaving)
	if t.work.ctx.Err() != nil {
		o.live.later = nil
		return
	}
	if err != nil {
		timing, most := t.engine.timing, t.engine.timing.forbiddenMax
		var look *kube.ContentsError
		if errors.As(err, &look) {
			most = timing.retryMax // the check takes a request for each kind
		}
		o.retry.failure = fleet.Cause{Reason: kube.ReasonOf(err, fleet.ReasonPruneFailed), Message: want.String() + ": " + err.Error()}
		o.leaving.contents, o.leaving.unservedSince, o.leaving.emptyAt = fleet.Cause{}, time.Time{}, time.Time{}
		o.retry.due = time.Now().Add(o.retry.backoff.NextJittered(timing.retryFirst, most))
		return
	}
	tries := o.retry.backoff
	o.retry.failure, o.leaving.contents, o.retry.backoff, o.retry.due = fleet.Cause{}, fleet.Cause{}, wait.Backoff{}, time.Time{}
	if !out.KindUnserved {
		o.leaving.unservedSince = time.Time{}
	}
	if out.Outcome != kube.OutcomeEmpty {
		o.leaving.emptyAt = time.Time{}
	}
	switch out.Outcome {
	case kube.OutcomeGone:
		if out.KindUnserved && t.doubtsUnserved(o) {
			break
		}
		if t.awaitsTakeover(o) {
			t.transition(o, phaseKept)
			o.leaving.waits, o.retry.due = true, t.now.Add(tries.NextJittered(t.engine.timing.retryFirst, t.engine.timing.retryMax))
			o.retry.backoff = tries
			o.leaving.cause = fleet.Cause{Reason: fleet.ReasonHandOverPending, Message: "it has finished, and another deployment that wants it has not taken it over yet"}
			break
		}
		if want == kube.IntentDelete {
			message := "was deleted"
			if out.KindUnserved {
				message = "its kind is not served any more"
			}
			t.event(fleet.EventNormal, fleet.ReasonPruned, o, message)
		}
		t.forget(o)
	case kube.OutcomeReleased:
		t.detached(o, out.Live)
	case kube.OutcomeNotOurs:
		t.lose(o, want, out.Cause)
	case kube.OutcomeKept:
		t.transition(o, phaseKept)
		o.leaving.cause, o.leaving.keptBy, o.live.known = out.Cause, out.Cause, true
	case kube.OutcomeTerminating:
		t.transition(o, phaseTerminating)
		o.live.known, o.health.status, o.health.cause = true, fleet.HealthTerminating, out.Cause
		if o.leaving.since.IsZero() {
			o.leaving.since = t.now
		}
		if o.watch.Failed() || !o.kind.resolved {
			o.retry.due = time.Now().Add(o.retry.backoff.NextJittered(t.engine.timing.retryFirst, t.engine.timing.forbiddenMax))
		}
	case kube.OutcomeWaits:
		t.transition(o, phaseKept)
		o.leaving.cause, o.live.known = out.Cause, true
		if want == kube.IntentDetach || want == kube.IntentRelease {
			t.retryLater(o, tries, t.engine.timing.forbiddenMax)
		}
	case kube.OutcomeOccupied:
		t.transition(o, phaseKept)
		o.leaving.cause, o.live.known, o.leaving.contents = out.Cause, true, out.Cause
		t.retryLater(o, tries, t.engine.timing.retryMax) // the check takes a request for each kind
	case kube.OutcomeEmpty:
		t.transition(o, phaseKept)
		o.live.known, o.leaving.waits, o.leaving.emptyAt = true, true, t.now
		o.retry.due = t.now.Add(t.engine.timing.unserved)
		o.leaving.cause = fleet.Cause{Reason: fleet.ReasonPruning, Message: "nothing of any deployment is in it, which is checked a second time"}
		o.leaving.contents = o.leaving.cause
	case kube.OutcomeExists:
		t.transition(o, phaseKept)
		o.live.known = true
		if out.Live != nil {
			o.update(out.Live)
		}
	}
	t.evaluateLater(o)
}

// doubtsUnserved keeps an object whose kind is not served until that has lasted for a while: an API server that has just
// started may not serve all of its kinds yet.
func (t *target) doubtsUnserved(o *object) bool {
	if o.leaving.unservedSince.IsZero() {
		o.leaving.unservedSince = t.now
	}
	sure := o.leaving.unservedSince.Add(t.engine.timing.unserved)
	if !t.now.Before(sure) {
		return false
	}
	t.transition(o, phaseKept)
	o.leaving.waits, o.retry.due = true, sure
	o.leaving.cause = fleet.Cause{Reason: fleet.ReasonKindNotFound, Message: "its kind is not served at the moment, which is checked again before it counts as gone"}
	o.leaving.contents = o.leaving.cause
	return true
}

// wantedElsewhere returns why an object has to wait for other targets of this agent; zero when it does not. handOver is
// what the server says about it.
func (t *target) wantedElsewhere(key inventory.Key, handOver fleet.Cause) fleet.Cause {
	if why := cmp.Or(claimed(t.engine.claims.other(key, t.id)), handOver); !why.IsZero() {
		return why
	}
	if t.engine.isPending() {
		return inventory.WaitingForDeployments()
	}
	return fleet.Cause{}
}

// lose drops an object that exists and is not ours any more.
func (t *target) lose(o *object, want kube.Intent, why fleet.Cause) {
	other := t.engine.claims.other(o.key(), t.id)
	if other != "" && want != kube.IntentRelease {
		t.event(fleet.EventNormal, fleet.ReasonHandedOver, o, fmt.Sprintf("was taken over by target %s", other))
	} else if want == kube.IntentRelease {
		t.end.released = append(t.end.released, release{o.ref.String(), o.leaving.cause})
		t.event(fleet.EventNormal, fleet.ReasonReleased, o, "was kept when its deployment was deleted: "+o.leaving.cause.Message)
	} else {
		t.event(fleet.EventWarning, fleet.ReasonNotPruned, o, "was left alone: "+why.Message)
	}
	t.forget(o)
}

// evaluateLeaving evaluates the state of a leaving object.
func (t *target) evaluateLeaving(o *object, live *unstructured.Unstructured) {
	o.update(live)
	if o.live.known = live.GetLabels()[kube.LabelTarget] == string(t.id); !o.live.known {
		o.retry.due = time.Time{} // another owner has taken it over
	}
	whole := t.work.desired.State.Tombstone
	if !o.leaving.keptBy.IsZero() && kube.KeptByLive(live.GetAnnotations(), whole).IsZero() && kube.KeptByManifest(o.record.keepAnnotation, whole).IsZero() {
		t.transition(o, phaseLeaving)
		o.leaving.keptBy = fleet.Cause{}
	}
}

// recheckLeaving checks again a leaving object that may be gone by now.
func (t *target) recheckLeaving(o *object) {
	t.transition(o, phaseLeaving)
	o.live.known, o.leaving.keptBy, o.retry.due = false, fleet.Cause{}, time.Time{}
}

// noInventoryMessage is the message of a tombstone for a target without an inventory.
const noInventoryMessage = "no inventory was found here: nothing was deleted"

// finish removes the inventory of a target whose tombstone was carried out, or whose objects were released.
func (t *target) finish() {
	switch {
	case t.inv.running || t.now.Before(t.inv.due):
	case t.inv.inventory.Stale():
		t.startReload() // after a removal that stopped half way, the objects that are left come back
	default:
		t.writeInventory(false, t.inv.inventory.Delete, t.inventoryDeleted)
	}
}

// inventoryDeleted records that nothing is left of a target.
func (t *target) inventoryDeleted(err error) {
	if err != nil {
		t.saveFailed(err)
		return
	}
	t.inv = inventoryState{inventory: t.inv.inventory, base: t.inv.base}
	t.end.done = true
	switch {
	case t.work.desired.State.Detached:
		t.event(fleet.EventNormal, fleet.ReasonDetached, nil, fmt.Sprintf("%d objects stay as they are and are not managed any more", len(t.end.detached)))
	case t.end.noInventory:
		t.event(fleet.EventWarning, fleet.ReasonNoInventory, nil, noInventoryMessage)
	default:
		t.event(fleet.EventNormal, fleet.ReasonDeleted, nil, "everything was deleted")
	}
}
