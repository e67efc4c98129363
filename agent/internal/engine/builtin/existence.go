package builtin

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
)

// A new object is read before it is first applied, in case somebody else has created it. For many objects of one kind in
// one namespace, a single list of the objects of others answers that.
const (
	minChecked = 16 // the number of objects that is worth a list
	// nextCheckBelow is how many checked objects are left to apply when the next list starts: its result arrives in time and
	// is not too old when its objects are applied.
	nextCheckBelow = 64
)

// existenceCheck is how far the check went whether an object exists that was never applied.
type existenceCheck struct {
	state    checkState
	absentAt time.Time // when a list did not have the object
}

type checkState int

const (
	notChecked   checkState = iota
	checkQueued             // it waits in this pass for a list
	checkRunning            // a list is under way
	checkDone               // once for each version
)

// pending reports whether the object waits for a list.
func (c existenceCheck) pending() bool { return c.state == checkQueued || c.state == checkRunning }

// checkExistence starts lists for new objects that would otherwise be read one by one. The objects of a kind and
// namespace wait for the list that covers them.
func (t *target) checkExistence(now time.Time, s progress) {
	var at kube.KindNamespace
	var fresh []*object // of one kind and namespace, which are consecutive within a step except for a kind of two versions
	ready := 0          // so far: the next list is too early while these are applied first
	for _, o := range t.order {
		if o.existence.state == checkQueued {
			o.existence.state = notChecked
		}
		if !t.startable(o, now, s) {
			continue
		}
		if here := (kube.KindNamespace{Mapping: o.kind.mapping, Namespace: o.ref.Namespace}); here != at {
			ready += t.checkExistenceOf(at, fresh, ready)
			at, fresh = here, fresh[:0]
		}
		if o.needsExistenceCheck() && !t.cache.uncheckable[at] {
			fresh = append(fresh, o)
		} else {
			ready++
		}
	}
	t.checkExistenceOf(at, fresh, ready)
}

// checkExistenceOf starts a list for the next objects of a kind and namespace, unless enough others are ready to be
// applied before them. It returns how many more will be ready.
func (t *target) checkExistenceOf(at kube.KindNamespace, fresh []*object, ready int) int {
	if len(fresh) < minChecked {
		return len(fresh)
	}
	for _, o := range fresh {
		o.existence.state = checkQueued
	}
	if ready >= nextCheckBelow || t.inflight >= t.maxInflight() {
		return 0
	}
	next := fresh[:min(len(fresh), kube.MaxChecked)]
	t.startExistenceCheck(at, slices.Clone(next))
	return len(next)
}

// needsExistenceCheck reports whether nothing is known about an object that is to be applied.
func (o *object) needsExistenceCheck() bool {
	return o.phase == phaseApply && o.record.uid == "" && !o.live.known && o.existence.state == notChecked && o.leaving == nil
}

func (t *target) startExistenceCheck(at kube.KindNamespace, objects []*object) {
	for _, o := range objects {
		o.existence.state = checkRunning
	}
	t.start(func(ctx context.Context) func() {
		asked := time.Now()
		taken, err := t.work.client.ForeignNames(ctx, at, t.work.owner.Target)
		return func() {
			t.cache.uncheckable[at] = t.cache.uncheckable[at] || errors.Is(err, kube.ErrTooMany) || apierrors.IsForbidden(err)
			for _, o := range objects {
				o.existence.state = checkDone
				if err == nil && !taken[o.ref.Name] && o.stillUnknown() {
					o.existence.absentAt = asked
				}
			}
		}
	})
}

// stillUnknown reports whether the result of a list is still of use for an object.
func (o *object) stillUnknown() bool {
	return o.phase == phaseApply && o.record.uid == "" && o.leaving == nil
}
