package builtin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// tally counts objects by their sync state, and has the cause of the first object of some of them, with its name.
type tally struct {
	failed, syncing, changed, held int
	failure, progress, change      fleet.Cause
}

func count(objects []fleet.ObjectStatus) tally {
	var n tally
	for _, o := range objects {
		why := fleet.Cause{Reason: o.Reason, Message: o.ObjectRef.String() + ": " + o.Message}
		switch o.Sync {
		case fleet.SyncFailed:
			n.failed++
			n.failure = cmp.Or(n.failure, why)
		case fleet.SyncSyncing:
			n.syncing++
			n.progress = cmp.Or(n.progress, why)
		case fleet.SyncOutOfSync:
			n.changed++
			n.change = cmp.Or(n.change, why)
		case fleet.SyncHeld:
			n.held++
		}
	}
	return n
}

// failures describes the failed objects; "" when there are none.
func (n tally) failures() string {
	if n.failed == 0 {
		return ""
	}
	return n.failure.Message + others(n.failed)
}

// summarize derives the sync state of the target and its cause from its objects.
func (t *target) summarize(objects []fleet.ObjectStatus) (fleet.SyncState, fleet.Cause) {
	n := count(objects)
	switch {
	case t.stopped.successor != "":
		// The server has one target of a deployment on an agent. If it sends this one, it was restored from a backup.
		return fleet.SyncRewound, fleet.Cause{Reason: fleet.ReasonRewound,
			Message: fmt.Sprintf("target %s of the same deployment came after this one and has taken over here", t.stopped.successor)}
	case t.stopped.newerReplica:
		return fleet.SyncFailed, fleet.Cause{Reason: fleet.ReasonNewerReplica, Message: "another replica of this agent has taken over and works on a newer version"}
	case !t.work.invalid.IsZero():
		return fleet.SyncFailed, t.work.invalid
	case t.end.done:
		return t.endSummary()
	case !t.inv.failure.IsZero():
		return fleet.SyncFailed, t.inv.failure
	case t.work.desired.State.Detached:
		return t.detachSummary(n)
	case n.syncing > 0 && !t.settled():
		return t.progressSummary(n)
	}
	state, reason, notes := t.settledSummary(n, objects)
	return state, fleet.Cause{Reason: reason, Message: joinNonEmpty("; ", append(notes, t.keptSummary())...)}
}

// settledSummary summarizes a target that has tried every object. The notes are the message, without the objects that are
// kept.
func (t *target) settledSummary(n tally, objects []fleet.ObjectStatus) (state fleet.SyncState, reason fleet.Reason, notes []string) {
	damaged := t.inv.inventory.Damaged()
	switch tomb := t.work.desired.State.Tombstone; {
	case n.failed > 0:
		return fleet.SyncFailed, fleet.ReasonObjectsFailed, []string{n.failures()}
	case tomb && len(damaged) > 0:
		return fleet.SyncFailed, fleet.ReasonInventoryDamaged, []string{"the inventory cannot be read: ConfigMap " + damaged[0]}
	case tomb && !t.firstRefusal().IsZero():
		return fleet.SyncFailed, t.firstRefusal().Reason, nil
	case tomb && n.held > 0 && n.syncing == 0 && t.work.desired.State.HoldProtected:
		return fleet.SyncOutOfSync, fleet.ReasonPruneHeld, []string{n.heldAtEnd()}
	case tomb, n.syncing > 0:
		return fleet.SyncSyncing, cmp.Or(n.progress.Reason, fleet.ReasonPruning), []string{t.waitingFor()}
	case t.work.offlineCopy != nil && !t.offlineCopyDone(), t.recovers():
		return fleet.SyncSyncing, fleet.ReasonApplying, nil // the inventory is about to be written
	case n.changed > 0 && t.isDryRun():
		return fleet.SyncOutOfSync, fleet.ReasonDryRun, []string{t.dryRunSummary(n)}
	case n.changed > 0:
		return fleet.SyncOutOfSync, fleet.ReasonDrifted, []string{n.change.Message + others(n.changed), n.heldNote()}
	case n.held > 0:
		return fleet.SyncOutOfSync, fleet.ReasonPruneHeld, []string{n.heldNote(), t.lateObject(), t.unknownStates()}
	}
	return fleet.SyncSynced, cmp.Or(unhealthyReason(objects), fleet.ReasonSynced), []string{t.lateObject(), t.unknownStates()}
}

// unhealthyReason returns the reason of the first object with the worst health; "" when all are current.
func unhealthyReason(objects []fleet.ObjectStatus) fleet.Reason {
	worst, reason := fleet.HealthCurrent, fleet.Reason("")
	for _, o := range objects {
		if o.Health != worst && fleet.Worst(worst, o.Health) == o.Health {
			worst, reason = o.Health, o.Reason
		}
	}
	return reason
}

// endSummary describes how a target ended.
func (t *target) endSummary() (fleet.SyncState, fleet.Cause) {
	switch detached := t.work.desired.State.Detached; {
	case detached && t.end.noInventory:
		return fleet.SyncDetached, fleet.Cause{Reason: fleet.ReasonDetached, Message: "no inventory was found here: no object was detached"}
	case detached:
		return fleet.SyncDetached, fleet.Cause{Reason: fleet.ReasonDetached}
	case t.end.noInventory:
		return fleet.SyncDeleted, fleet.Cause{Reason: fleet.ReasonNoInventory, Message: noInventoryMessage}
	case len(t.end.released) > 0:
		return fleet.SyncDeleted, fleet.Cause{Reason: fleet.ReasonReleased, Message: "kept, and not managed any more: " + describeReleased(t.end.released)}
	}
	return fleet.SyncDeleted, fleet.Cause{Reason: fleet.ReasonDeleted}
}

// progressSummary describes a target that has not tried every object yet. If a failed object keeps the others waiting,
// the target has failed.
func (t *target) progressSummary(n tally) (fleet.SyncState, fleet.Cause) {
	state, reason := fleet.SyncSyncing, fleet.ReasonApplying
	switch stuck := t.progress().stuck(); {
	case stuck && n.failed > 0:
		state, reason = fleet.SyncFailed, fleet.ReasonObjectsFailed
	case stuck:
		reason = fleet.ReasonDependencyNotReady
	}
	return state, fleet.Cause{Reason: reason, Message: joinNonEmpty("; ", n.failures(), t.lateObject(), t.waitNote())}
}

// unknownStates returns how many objects have an unknown state at present, and why.
func (t *target) unknownStates() string {
	count, why := 0, fleet.Cause{}
	for _, o := range t.order {
		if unknown := o.unknownState(); !unknown.IsZero() && o.leaving == nil {
			count++
			why = cmp.Or(why, unknown)
		}
	}
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("the state of %d of %d objects is not known: %s", count, len(t.order), why.Message)
}

// firstRefusal returns why this agent must not touch a leaving object; zero when it may touch all of them.
func (t *target) firstRefusal() fleet.Cause {
	for _, o := range t.order {
		if o.refused() {
			return o.leaving.bounds.refusal
		}
	}
	return fleet.Cause{}
}

// settled reports whether every desired object was tried for this version.
func (t *target) settled() bool { return t.progress().unattempted == 0 }

func others(failed int) string {
	if failed == 1 {
		return ""
	}
	return fmt.Sprintf(" (and %d others)", failed-1)
}

// keptSummary names the objects that are not desired any more and are kept.
func (t *target) keptSummary() string {
	const limit = 5
	var names, reasons []string
	listed := map[fleet.Cause]bool{}
	count := 0
	for _, o := range t.order {
		if o.leaving == nil || o.leaving.cause.IsZero() {
			continue
		}
		if count++; count <= limit {
			names = append(names, o.ref.String())
			if why := o.leaving.cause; !listed[why] {
				listed[why] = true
				reasons = append(reasons, why.Message)
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

// waitingFor names an object whose deletion takes long.
func (t *target) waitingFor() string {
	for _, o := range t.order {
		if o.phase == phaseTerminating {
			return fmt.Sprintf("%s %s", o.ref, o.health.cause.Message)
		}
	}
	return ""
}

func joinNonEmpty(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), separator)
}
