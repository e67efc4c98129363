package builtin

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/health"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wait"
)

// detach releases every object of a target. It never deletes an object:
//
//	record it in the inventory ──▶ remove the labels of each object ──▶ remove the inventory ──▶ Detached
//
// After a restart at any point the inventory still lists every object that may carry the labels. An object without them
// counts as released. An object that moves to another target is waited for, as with a tombstone: without the label it
// would have no owner for a moment, and the other deployment might not be allowed to adopt it.
func (t *target) detach() {
	t.engine.watchers.definitions.Want(t, false)
	if t.now.Before(t.inv.due) || !t.recordEnd() {
		return
	}
	t.claimsSeen = t.engine.claims.releaseCount()
	for _, o := range slices.Clone(t.order) {
		if t.inflight < t.maxInflight() && !o.busy() && !t.now.Before(o.retry.due) {
			t.releaseObject(o)
		}
	}
	switch {
	case t.inflight > 0:
	case len(t.objects) == 0 && len(t.inv.inventory.Damaged()) == 0:
		t.finish()
	case t.inventoryDue():
		t.saveInventory()
	}
}

// recordEnd writes the version of a detachment or a tombstone to the inventory before the first object is released or
// deleted, so that another replica of this agent does not continue the target, and that the inventory names no bundle
// any more. It reports whether that is written.
func (t *target) recordEnd() bool {
	if !t.inv.inventory.Exists() || t.inv.inventory.Version() == t.work.desired.State.Version && t.inv.inventory.Digest() == "" {
		return true
	}
	t.inv.digest, t.inv.dirty = "", true
	t.saveInventory()
	return false
}

// releaseObject releases one object, unless it has to wait or must not be touched.
func (t *target) releaseObject(o *object) {
	why := t.refusal(o.ref)
	if o.leaving.bounds = (bounds{refusal: why}); o.refused() {
		t.transition(o, phaseKept)
		o.leaving.cause = why
		return
	}
	handOver := t.handOver(o.ref)
	if t.engine.isPending() {
		t.transition(o, phaseKept)
		o.leaving.cause, o.leaving.waits = t.wantedElsewhere(o.key(), handOver), true
		return
	}
	o.leaving.cause, o.leaving.waits = fleet.Cause{}, false
	t.startRemove(o, kube.IntentDetach)
}

// retryLater schedules the next attempt for an object that another target is about to take over, or that contains
// objects of others. For the former it is a backstop: the watch reports the new owner, and claims report a released
// claim. Nothing reports that the contents are gone.
func (t *target) retryLater(o *object, tries wait.Backoff, most time.Duration) {
	o.leaving.waits, o.retry.backoff = true, tries
	t.awaitClaims()
	o.retry.due = time.Now().Add(o.retry.backoff.NextJittered(t.engine.timing.retryFirst, most))
}

// detached drops an object that was released, and keeps its state for the last status.
func (t *target) detached(o *object, live *unstructured.Unstructured) {
	left := fleet.ObjectStatus{ObjectRef: o.ref, Sync: fleet.SyncDetached, Reason: fleet.ReasonDetached}
	var why fleet.Cause
	left.Health, why = health.Of(live)
	left.Message = why.Message
	t.end.detached = append(t.end.detached, left)
	t.forget(o)
}

// detachSummary summarizes a detached target that has objects left.
func (t *target) detachSummary(n tally) (fleet.SyncState, fleet.Cause) {
	damaged, refused := t.inv.inventory.Damaged(), t.firstRefusal()
	state, why := fleet.SyncFailed, fleet.Cause{}
	switch {
	case n.failed > 0:
		why = fleet.Cause{Reason: fleet.ReasonObjectsFailed, Message: n.failures()}
	case len(damaged) > 0:
		why = fleet.Cause{Reason: fleet.ReasonInventoryDamaged, Message: "the inventory cannot be read: ConfigMap " + damaged[0]}
	case !refused.IsZero():
		why.Reason = refused.Reason
	default:
		state, why.Reason = fleet.SyncSyncing, cmp.Or(n.progress.Reason, fleet.ReasonDetaching)
	}
	return state, fleet.Cause{Reason: why.Reason, Message: joinNonEmpty("; ", why.Message, t.keptSummary())}
}
