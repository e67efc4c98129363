package builtin

import (
	"cmp"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// A bundle may declare an order: waves, and objects that depend on others. Then an object waits until everything before it
// is ready, which the watches report. Only objects that are not applied yet wait, so drift of others is corrected
// meanwhile, and a newer version begins at once. Within a wave kinds are applied in their own order, and nothing waits for
// readiness unless the bundle says so.

// arrange sets the order that the manifests declare. A server refuses an impossible order when it renders; a target with
// one applies nothing.
func (t *target) arrange(desired []*object, manifests []manifest.Object) {
	order, err := manifest.Arrange(manifests, t.work.desired.State.Namespace)
	if err != nil {
		t.work.invalid = fleet.Cause{Reason: fleet.ReasonBundleInvalid, Message: err.Error()}
		return
	}
	for i, o := range desired {
		o.position, o.spec.needs = order.Places[i], o.spec.needs[:0]
		for _, on := range order.Needs[i] {
			o.spec.needs = append(o.spec.needs, desired[on])
		}
	}
}

// ready reports whether objects that wait for this one may be applied.
func (o *object) ready() bool {
	return o.inPlace() && o.retry.attempted && o.retry.failure.IsZero() && o.health.status == fleet.HealthCurrent
}

// findBarrier finds the first object that is not ready: later waves wait for it.
func (t *target) findBarrier() {
	t.cache.barrier = nil
	for _, o := range t.order {
		if o.leaving == nil && !o.ready() {
			t.cache.barrier = o
			return
		}
	}
}

// waitsFor returns the object that has to be ready before an object is applied for the first time in this version; nil
// when there is none.
func (t *target) waitsFor(o *object) *object {
	if o.leaving != nil || o.retry.attempted || o.drift.healing || o.phase != phaseApply && o.phase != phaseResolve || t.isDryRun() {
		return nil
	}
	if t.cache.barrier != nil && o.position.Wave > t.cache.barrier.position.Wave {
		return t.cache.barrier
	}
	for _, on := range o.spec.needs {
		if !on.ready() {
			return on
		}
	}
	return nil
}

// waitNote describes how many objects wait for which one; "" when none does.
func (t *target) waitNote() string {
	count := 0
	var on *object
	for _, o := range t.order {
		if first := t.waitsFor(o); first != nil {
			count++
			if on == nil {
				on = first
			}
		}
	}
	if on == nil {
		return ""
	}
	who := "1 object waits"
	if count > 1 {
		who = fmt.Sprintf("%d objects wait", count)
	}
	return joinNonEmpty(": ", fmt.Sprintf("%s for %s to be ready", who, on.ref), on.unreadyNote())
}

// unreadyNote returns why an object is not ready, as far as it is known.
func (o *object) unreadyNote() string { return cmp.Or(o.retry.failure, o.health.cause).Message }
