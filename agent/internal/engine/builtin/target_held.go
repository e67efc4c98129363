package builtin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// holdLeaving marks an object that the desired version does not name, if that version prunes nothing because the server has
// just recovered, or if the kind filter of the agent excludes the object. The mark is written to the inventory with the
// version, so that neither a later version nor another filter deletes the object before a user confirms it.
func (t *target) holdLeaving(o *object) {
	switch s := t.work.desired.State; {
	case s.Tombstone || s.Detached:
	case s.HoldPrune:
		o.record.hold = cmp.Or(o.record.hold, inventory.HeldAfterRecovery)
	case t.engine.config().kinds.Refusal(o.ref) != "":
		o.record.hold = cmp.Or(o.record.hold, inventory.HeldByKindFilter)
	}
}

// holdRefused does that for an object that had left before the filter came to exclude its kind.
func (t *target) holdRefused(o *object) {
	if before := o.record.hold; o.leaving.bounds.refusal.Reason == fleet.ReasonKindNotAllowed && before == "" && !t.isDryRun() {
		t.holdLeaving(o)
		t.inv.dirty = t.inv.dirty || o.record.hold != before
	}
}

// recovers reports whether those marks are not written yet. When a version is Synced or OutOfSync the server relies on
// its marks and sends the next version without HoldPrune.
func (t *target) recovers() bool {
	s := t.work.desired.State
	return s.HoldPrune && !t.isDryRun() && t.inv.inventory.Version() != s.Version
}

// sizeOfChange returns how many of the objects that have left count for the prune limit. Objects that are held after a
// recovery, or by a kind filter, are no part of a change of the source.
func sizeOfChange(gone []*object) int {
	n := 0
	for _, o := range gone {
		if !o.record.hold.OutsideChange() {
			n++
		}
	}
	return n
}

// desiredCount returns how many objects the bundle names.
func (t *target) desiredCount() int {
	n := 0
	for _, o := range t.order {
		if o.leaving == nil {
			n++
		}
	}
	return n
}

// holdsProtected reports whether a tombstone still holds an object of a protected kind. Until it does not, nothing is
// released: a Namespace whose deletion is confirmed later must not take an object with it that an annotation keeps, and
// the engine does not know objects any more that it has released.
func (t *target) holdsProtected() bool {
	return t.work.desired.State.HoldProtected && slices.ContainsFunc(t.order, func(o *object) bool {
		// One that waits for another deployment, or for the policy of the owner, may be confirmed later too.
		return o.leaving != nil && manifest.IsProtected(o.ref) && o.leaving.bounds.beyond.IsZero() && o.leaving.keptBy.IsZero()
	})
}

// heldNote summarizes what waits for a confirmation; "" when nothing does.
func (n tally) heldNote() string {
	switch n.held {
	case 0:
		return ""
	case 1:
		return "1 object has left the source and is held until its deletion is confirmed"
	}
	return fmt.Sprintf("%d objects have left the source and are held until their deletion is confirmed", n.held)
}

// heldAtEnd summarizes what a tombstone holds.
func (n tally) heldAtEnd() string {
	if n.held == 1 {
		return "the deployment is deleted, except for 1 object that is held until its deletion is confirmed"
	}
	return fmt.Sprintf("the deployment is deleted, except for %d objects that are held until their deletion is confirmed", n.held)
}

// release is an object that was kept when its deployment was deleted, and why.
type release struct {
	ref string
	why fleet.Cause
}

// describeReleased names the objects that were kept, each reason once.
func describeReleased(released []release) string {
	var reasons []fleet.Cause
	names := map[fleet.Cause][]string{}
	for _, r := range released {
		if names[r.why] == nil {
			reasons = append(reasons, r.why)
		}
		names[r.why] = append(names[r.why], r.ref)
	}
	parts := make([]string, 0, len(reasons))
	for _, why := range reasons {
		parts = append(parts, fmt.Sprintf("%s (%s)", strings.Join(names[why], ", "), why.Message))
	}
	return strings.Join(parts, "; ")
}

// reportHeld emits a warning, once for each version, that deletions wait for a confirmation.
func (t *target) reportHeld(s engine.Status) {
	n := count(s.Objects)
	if n.held == 0 || s.Observed.Sync != fleet.SyncOutOfSync || t.out.heldVersion == s.Observed.Version {
		return
	}
	t.out.heldVersion = s.Observed.Version
	note := fmt.Sprintf("%d objects are as desired; %s", t.desiredCount()-n.changed, n.heldNote())
	if t.work.desired.State.Tombstone {
		note = n.heldAtEnd()
	}
	t.event(fleet.EventWarning, fleet.ReasonPruneHeld, nil, note+": kedge deploy prunes "+t.work.desired.Deployment)
}
