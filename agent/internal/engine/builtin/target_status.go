package builtin

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// outbox is what was last reported about a target.
type outbox struct {
	sent           engine.Status
	reported       bool
	syncedVersion  fleet.Version // the version that was reported as Synced
	heldVersion    fleet.Version // the version of the last PruneHeld event
	next           time.Time     // the earliest time of the next status
	again          time.Time     // when to report again without an event
	restoringSince time.Time     // since when an object of a Synced target is restored
}

// report reports the status of the target if it has changed. Making a status costs time in proportion to the number of
// objects; in targets with many objects, bursts of events share one.
func (t *target) report() {
	if t.work.ctx == nil {
		return
	}
	now := t.now
	t.out.again = time.Time{}
	switch {
	case t.inv.running && !t.inv.quiet:
		return // its result starts the next pass
	case now.Before(t.out.next):
		t.out.again = t.out.next
		return
	case t.restoring():
		t.out.again = t.out.restoringSince.Add(restoreGrace)
		return
	}
	t.out.next = now.Add(t.statusInterval())
	status := t.status()
	last := t.out.sent
	last.Observed.AsOf = time.Time{}
	if t.out.reported && reflect.DeepEqual(status, last) {
		return
	}
	status.Observed.AsOf = time.Now()
	t.out.sent, t.out.reported = status, true
	t.engine.reporter.Status(status)
	if status.Observed.Sync == fleet.SyncSynced && t.out.syncedVersion != status.Observed.Version {
		t.out.syncedVersion = status.Observed.Version
		t.event(fleet.EventNormal, fleet.ReasonSynced, nil, fmt.Sprintf("%d objects are as desired", t.desiredCount()))
	}
	t.reportHeld(status)
}

// statusInterval is the shortest time between two statuses. It is longer while many requests are under way.
func (t *target) statusInterval() time.Duration {
	each := 10 * time.Microsecond
	if t.inflight > t.maxInflight()/2 {
		each = 50 * time.Microsecond
	}
	return time.Duration(len(t.objects)) * each
}

// restoreGrace is how long a target stays Synced while an object is read again or restored, which takes milliseconds. A
// status that flaps helps nobody, and an event reports the drift.
const restoreGrace = time.Second

func (t *target) restoring() bool {
	s := t.progress()
	last := t.out.sent.Observed
	calm := last.Sync == fleet.SyncSynced || last.Sync == fleet.SyncOutOfSync && t.out.heldVersion == last.Version
	if s.waiting == 0 || s.failed > 0 || !calm || last.Version != t.work.desired.State.Version {
		t.out.restoringSince = time.Time{}
		return false
	}
	if t.out.restoringSince.IsZero() {
		t.out.restoringSince = t.now
	}
	return t.now.Sub(t.out.restoringSince) < restoreGrace
}

// event emits an event; o may be nil.
func (t *target) event(kind fleet.EventType, reason fleet.Reason, o *object, message string) {
	e := fleet.Event{At: time.Now(), Type: kind, Reason: reason, Deployment: t.work.desired.Deployment, Message: message}
	if o != nil {
		e.Object = o.ref.String()
	}
	t.engine.reporter.Event(t.id, e)
}

// status describes the target and all of its objects. The caller sets AsOf.
func (t *target) status() engine.Status {
	out := engine.Status{Target: t.id, Observed: fleet.Observed{Version: t.work.desired.State.Version, Digest: t.inv.digest}}
	out.Objects = append(make([]fleet.ObjectStatus, 0, len(t.end.detached)+len(t.order)), t.end.detached...)
	for _, o := range t.order {
		out.Objects = append(out.Objects, t.overdue(o, t.describeObject(o)))
	}
	for _, o := range out.Objects {
		out.Observed.Health = fleet.Worst(out.Observed.Health, o.Health)
	}
	slices.SortFunc(out.Objects, func(a, b fleet.ObjectStatus) int {
		return inventory.KeyOf(a.ObjectRef).Compare(inventory.KeyOf(b.ObjectRef))
	})
	if out.Observed.Health == "" {
		out.Observed.Health = fleet.HealthCurrent
	}
	state, why := t.summarize(out.Objects)
	out.Observed.Sync, out.Observed.Reason, out.Observed.Message = state, why.Reason, why.Message
	return out
}

// untilDue returns how long the goroutine may sleep if no event arrives.
func (t *target) untilDue() time.Duration {
	const never = time.Hour
	next := t.now.Add(never)
	sooner := func(at time.Time) {
		if at.After(t.now) && at.Before(next) {
			next = at
		}
	}
	for _, o := range t.order {
		sooner(o.retry.due)
		sooner(t.deadline(o))
		if o.health.diagnosis == nil {
			sooner(o.diagnosable())
		}
		if o.rereadable() {
			sooner(o.reread.at)
		}
	}
	sooner(t.inv.due)
	if t.inv.healed {
		sooner(t.healWriteDue())
	}
	if t.work.ctx != nil {
		sooner(t.work.begun.Add(resolveGrace))
		if len(t.work.desired.State.HandOvers) > 0 {
			sooner(t.work.begun.Add(handOverGrace))
		}
	}
	sooner(t.out.again)
	return time.Until(next)
}
