package builtin

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// outbox is what was last said of a target.
type outbox struct {
	sent   engine.Status
	said   bool
	synced fleet.Version // the version that Synced was said of
	next   time.Time     // not before this is the next status made
	again  time.Time     // when to think of making one again, whatever happens
	since  time.Time     // since when something is restored that was Synced
}

// report says how the target is, if that has changed. Making a status costs in proportion to the
// number of objects; for targets with many, bursts of events share one.
func (t *target) report() {
	if t.ctx == nil {
		return
	}
	now := t.now
	t.out.again = time.Time{}
	switch {
	case now.Before(t.out.next):
		t.out.again = t.out.next
		return
	case t.blinking():
		t.out.again = t.out.since.Add(blink)
		return
	}
	t.out.next = now.Add(time.Duration(len(t.objects)) * 10 * time.Microsecond)
	status := t.status()
	last := t.out.sent
	last.Observed.AsOf = time.Time{}
	if t.out.said && reflect.DeepEqual(status, last) {
		return
	}
	status.Observed.AsOf = time.Now()
	t.out.sent, t.out.said = status, true
	t.engine.reporter.Status(status)
	if status.Observed.Sync == fleet.SyncSynced && t.out.synced != status.Observed.Version {
		t.out.synced = status.Observed.Version
		t.event(fleet.EventNormal, "Synced", nil, fmt.Sprintf("%d objects are as desired", len(status.Objects)))
	}
}

// blink is how long a target goes on to be called Synced while an object of it is looked at again
// or restored, which takes milliseconds: a status that flaps tells nobody anything, and an event
// tells of the drift.
const blink = time.Second

func (t *target) blinking() bool {
	s := t.survey()
	last := t.out.sent.Observed
	if s.waiting == 0 || s.failed > 0 || last.Sync != fleet.SyncSynced || last.Version != t.desired.State.Version {
		t.out.since = time.Time{}
		return false
	}
	if t.out.since.IsZero() {
		t.out.since = t.now
	}
	return t.now.Sub(t.out.since) < blink
}

// event tells users of something that happened; o may be nil.
func (t *target) event(kind fleet.EventType, reason string, o *object, message string) {
	e := fleet.Event{At: time.Now(), Type: kind, Reason: reason, Deployment: t.desired.Deployment, Message: message}
	if o != nil {
		e.Object = o.ref.String()
	}
	t.engine.reporter.Event(t.id, e)
}

// status describes the target and every object of it. AsOf is left to the caller.
func (t *target) status() engine.Status {
	out := engine.Status{Target: t.id, Observed: fleet.Observed{Version: t.desired.State.Version, Digest: t.digest}}
	out.Objects = slices.Clone(t.parted)
	for _, o := range t.order {
		out.Objects = append(out.Objects, o.status())
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
	out.Observed.Sync, out.Observed.Message = t.verdict(out.Objects)
	return out
}

// verdict sums up the objects.
func (t *target) verdict(objects []fleet.ObjectStatus) (fleet.SyncState, string) {
	failed, syncing := 0, 0
	var first string
	for _, o := range objects {
		switch o.Sync {
		case fleet.SyncFailed:
			if failed++; failed == 1 {
				first = o.ObjectRef.String() + ": " + o.Message
			}
		case fleet.SyncSyncing:
			syncing++
		}
	}
	kept := t.kept()
	switch tomb, detached := t.desired.State.Tombstone, t.desired.State.Detached; {
	case t.ousted:
		return fleet.SyncFailed, "another replica of this agent has taken over and works on a newer version"
	case t.gone && detached && t.lost:
		return fleet.SyncDetached, "no inventory was found here: nothing was to be let go of"
	case t.gone && detached:
		return fleet.SyncDetached, ""
	case t.gone && t.lost:
		return fleet.SyncDeleted, noInventory
	case t.gone && len(t.released) > 0:
		return fleet.SyncDeleted, "kept, and not managed any more: " + strings.Join(t.released, ", ")
	case t.gone:
		return fleet.SyncDeleted, ""
	case t.saving.failure != "":
		return fleet.SyncFailed, t.saving.failure
	case detached:
		return t.leaving(failed, first)
	case syncing > 0 && !t.settled():
		return fleet.SyncSyncing, first
	case failed > 0:
		return fleet.SyncFailed, joinNonEmpty("; ", first+others(failed), kept)
	case tomb && len(t.book.Damaged()) > 0:
		return fleet.SyncFailed, joinNonEmpty("; ", "the inventory cannot be read: ConfigMap "+t.book.Damaged()[0], kept)
	case tomb && t.refuses():
		return fleet.SyncFailed, kept
	case tomb, syncing > 0:
		return fleet.SyncSyncing, joinNonEmpty("; ", t.waitingFor(), kept)
	}
	return fleet.SyncSynced, joinNonEmpty("; ", t.darkness(), kept)
}

// darkness says how many objects nothing is known of at present, and why.
func (t *target) darkness() string {
	count, why := 0, ""
	for _, o := range t.order {
		if o.darkness() != "" && o.manifest != nil {
			count++
			why = cmp.Or(why, o.darkness())
		}
	}
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("the state of %d of %d objects is not known: %s", count, len(t.order), why)
}

// refuses reports whether something is to go that this agent must not touch.
func (t *target) refuses() bool {
	return slices.ContainsFunc(t.order, func(o *object) bool { return o.refused })
}

// settled reports whether every desired object was tried for this version.
func (t *target) settled() bool { return t.survey().unattempted == 0 }

func others(failed int) string {
	if failed == 1 {
		return ""
	}
	return fmt.Sprintf(" (and %d others)", failed-1)
}

// kept names what is no longer desired and is kept.
func (t *target) kept() string {
	const limit = 5
	var names, reasons []string
	count := 0
	for _, o := range t.order {
		if o.manifest != nil || o.held == "" {
			continue
		}
		if count++; count <= limit {
			names = append(names, o.ref.String())
			if !slices.Contains(reasons, o.held) {
				reasons = append(reasons, o.held)
			}
		}
	}
	if count == 0 {
		return ""
	}
	if count > limit {
		names = append(names, fmt.Sprintf("and %d more", count-limit))
	}
	return fmt.Sprintf("kept: %s (%s)", strings.Join(names, ", "), strings.Join(reasons, "; "))
}

// waitingFor names an object whose deletion takes its time.
func (t *target) waitingFor() string {
	for _, o := range t.order {
		if o.phase == phaseTerminating {
			return fmt.Sprintf("%s %s", o.ref, o.note)
		}
	}
	return ""
}

func joinNonEmpty(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), separator)
}

// status describes one object.
func (o *object) status() fleet.ObjectStatus {
	out := fleet.ObjectStatus{ObjectRef: o.ref, Sync: fleet.SyncSyncing, Health: o.health, Message: o.note}
	switch {
	case out.Health != "":
	case o.manifest != nil && o.failure == "":
		out.Health = fleet.HealthInProgress
	default:
		out.Health = fleet.HealthUnknown
	}
	switch {
	case o.failure != "":
		out.Sync, out.Message = fleet.SyncFailed, o.failure
	case o.phase == phaseInPlace, o.reviewing:
		out.Sync = fleet.SyncSynced
		if o.scaler != "" {
			out.Message = joinNonEmpty("; ", out.Message, "replicas are set by "+o.scaler)
		}
	case o.delayed:
		out.Message = "is changed again and again by something else; restored less and less often"
	case o.manifest == nil && o.held != "" && o.waits:
		out.Message = "is not in the bundle any more; kept for now: " + o.held
	case o.manifest == nil && o.held != "":
		out.Sync, out.Message = fleet.SyncSynced, "is not in the bundle any more; kept: "+o.held
	case o.manifest == nil && o.note == "":
		out.Message = "is not in the bundle any more"
	}
	switch {
	case out.Sync != fleet.SyncSynced:
	case o.darkness() != "":
		out.Health, out.Message = fleet.HealthUnknown, o.darkness()
	case o.denied != "":
		out.Message = joinNonEmpty("; ", out.Message, "not watched, so that drift and health are noticed late: "+o.denied)
	}
	return out
}

// darkness says why nothing is known of the object at present, or "".
func (o *object) darkness() string { return cmp.Or(o.dark, o.unread) }

// untilDue is when the goroutine has to look again, if nothing happens before.
func (t *target) untilDue() time.Duration {
	const never = time.Hour
	next := t.now.Add(never)
	sooner := func(at time.Time) {
		if at.After(t.now) && at.Before(next) {
			next = at
		}
	}
	for _, o := range t.order {
		sooner(o.due)
		if o.reviewable() {
			sooner(o.review)
		}
	}
	sooner(t.saving.due)
	if t.ctx != nil {
		sooner(t.begun.Add(grace))
	}
	sooner(t.out.again)
	return time.Until(next)
}
