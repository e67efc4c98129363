package builtin

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
)

// A new object is looked at before it is first applied, in case somebody else has put it there. For many
// of one kind in one namespace a single list of what is not ours says the same.
const (
	minChecked = 16 // objects that are worth a list
	// nextCheckBelow is how many of those are left to be applied when the next list is asked for: it comes just
	// in time then, and is not old when its objects have their turn.
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

// checkExistence asks at once for new objects that would be looked at one by one. All of such a shelf wait for the
// list that speaks for them.
func (t *target) checkExistence(now time.Time, s progress) {
	var at kube.KindNamespace
	var fresh []*object // of one shelf, which lies in one piece within a step but for a kind of two versions
	ready := 0          // of all shelves so far: the next list is too early while those are to be applied first
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

// checkExistenceOf asks for the next objects of a shelf, unless enough are ready to be applied before them, and returns how many more
// are on their way to be.
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

// needsExistenceCheck reports whether nothing is known of an object that is to be applied.
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

// stillUnknown reports whether what a list says is still of use for an object.
func (o *object) stillUnknown() bool {
	return o.phase == phaseApply && o.record.uid == "" && o.leaving == nil
}
