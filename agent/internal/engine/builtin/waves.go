package builtin

import (
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// A bundle may ask for an order of its own: waves, and objects that depend on others. Then an object is
// held back until all that comes before it is ready, which its watch says: nothing is asked and no
// timer runs. Only what is not applied yet is held back, so that drift of what is in place is healed
// meanwhile, and a newer version begins at once. Within a wave kinds are applied in their own order,
// and nothing waits for readiness unless it says so.

// arrange brings desired objects into the order that their manifests ask for. A server refuses what
// cannot be kept when it renders; one that did not must not get half of it applied.
func (t *target) arrange(desired []*object, manifests []manifest.Object) {
	order, err := manifest.Arrange(manifests, t.work.desired.State.Namespace)
	if err != nil {
		t.work.invalid = err.Error()
		return
	}
	for i, o := range desired {
		o.position, o.spec.needs = order.Places[i], o.spec.needs[:0]
		for _, on := range order.Needs[i] {
			o.spec.needs = append(o.spec.needs, desired[on])
		}
	}
}

// ready reports whether what comes after an object may begin.
func (o *object) ready() bool {
	return o.inPlace() && o.retry.attempted && o.retry.failure == "" && o.health.status == fleet.HealthCurrent
}

// findBarrier finds the first object that is not ready: no later wave begins before it is.
func (t *target) findBarrier() {
	t.cache.barrier = nil
	for _, o := range t.order {
		if o.leaving == nil && !o.ready() {
			t.cache.barrier = o
			return
		}
	}
}

// waitsFor returns what has to be ready before an object is applied for the first time in this
// version; nil when nothing has.
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

// waitNote says what is waited for, and by how many; "" when nothing is.
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

// unreadyNote says why an object is not ready, as far as that is known.
func (o *object) unreadyNote() string {
	if o.retry.failure != "" {
		return o.retry.failure
	}
	return o.health.note
}
