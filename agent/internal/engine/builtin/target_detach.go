package builtin

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/backoff"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/health"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// detach lets go of everything that a target has put there. It never deletes an object:
//
//	note it in the inventory ──▶ take our labels off, one by one ──▶ remove the inventory ──▶ Detached
//
// After a kill at any point the inventory still lists every object that may carry our labels, and
// those that do not carry them any more are taken for let go. An object that moves to another target
// is waited for, as with a tombstone: without our label it would be nobody's for a moment, and the
// other deployment might not be allowed to adopt it.
func (t *target) detach() {
	t.engine.crds.Want(t, false)
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

// recordEnd writes the version of a detachment or a tombstone into the inventory before the first object is
// let go of or deleted, so that a replica of this agent that has not heard of it yet does not go on with the
// target, and that the inventory does not name a bundle any more. It reports whether that may go on.
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
		o.leaving.reason = why
		return
	}
	handOver := t.handOver(o.ref)
	if t.engine.isPending() {
		t.transition(o, phaseKept)
		o.leaving.reason, o.leaving.waits = t.wantedElsewhere(o.key(), handOver), true
		return
	}
	o.leaving.reason, o.leaving.waits = "", false
	t.startRemove(o, kube.IntentDetach)
}

// retryLater has an object looked at again later that another target is about to take over, or that others are in. For the first that is a
// backstop: its watch tells of the new owner, and claims tell when that one changes its mind. Nothing tells when others are gone.
func (t *target) retryLater(o *object, tries backoff.Backoff, most time.Duration) {
	o.leaving.waits, o.retry.backoff = true, tries
	t.awaitClaims()
	o.retry.due = time.Now().Add(o.retry.backoff.Next(t.engine.timing.retryFirst, most))
}

// detached forgets an object that was let go of, and remembers how it was for the last status.
func (t *target) detached(o *object, live *unstructured.Unstructured) {
	left := fleet.ObjectStatus{ObjectRef: o.ref, Sync: fleet.SyncDetached}
	left.Health, left.Message = health.Of(live)
	t.end.detached = append(t.end.detached, left)
	t.forget(o)
}

// detachSummary sums up a detached target that has not let go of everything yet.
func (t *target) detachSummary(failed int, first string) (fleet.SyncState, string) {
	switch damaged := t.inv.inventory.Damaged(); {
	case failed > 0:
		return fleet.SyncFailed, joinNonEmpty("; ", first+others(failed), t.keptSummary())
	case len(damaged) > 0:
		return fleet.SyncFailed, joinNonEmpty("; ", "the inventory cannot be read: ConfigMap "+damaged[0], t.keptSummary())
	case t.anyRefused():
		return fleet.SyncFailed, t.keptSummary()
	}
	return fleet.SyncSyncing, t.keptSummary()
}
