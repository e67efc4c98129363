package builtin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// tally counts objects by their sync state, and has the message of the first failed and the first changed one.
type tally struct {
	failed, syncing, changed, held int
	failure, change                string
}

func count(objects []fleet.ObjectStatus) tally {
	var n tally
	for _, o := range objects {
		said := o.ObjectRef.String() + ": " + o.Message
		switch o.Sync {
		case fleet.SyncFailed:
			n.failed++
			n.failure = cmp.Or(n.failure, said)
		case fleet.SyncSyncing:
			n.syncing++
		case fleet.SyncOutOfSync:
			n.changed++
			n.change = cmp.Or(n.change, said)
		case fleet.SyncHeld:
			n.held++
		}
	}
	return n
}

// summarize derives the sync state and the message of the target from its objects.
func (t *target) summarize(objects []fleet.ObjectStatus) (fleet.SyncState, string) {
	n := count(objects)
	switch {
	case t.stopped.successor != "":
		// The server has one target of a deployment on an agent. If it sends this one, it was restored from a backup.
		return fleet.SyncRewound, fmt.Sprintf("target %s of the same deployment came after this one and has taken over here", t.stopped.successor)
	case t.stopped.newerReplica:
		return fleet.SyncFailed, "another replica of this agent has taken over and works on a newer version"
	case t.work.invalid != "":
		return fleet.SyncFailed, t.work.invalid
	case t.end.done:
		return t.endSummary()
	case t.inv.failure != "":
		return fleet.SyncFailed, t.inv.failure
	case t.work.desired.State.Detached:
		return t.detachSummary(n.failed, n.failure)
	case n.syncing > 0 && !t.settled():
		return t.progressSummary(n)
	}
	kept := t.keptSummary()
	switch tomb := t.work.desired.State.Tombstone; {
	case n.failed > 0:
		return fleet.SyncFailed, joinNonEmpty("; ", n.failure+others(n.failed), kept)
	case tomb && len(t.inv.inventory.Damaged()) > 0:
		return fleet.SyncFailed, joinNonEmpty("; ", "the inventory cannot be read: ConfigMap "+t.inv.inventory.Damaged()[0], kept)
	case tomb && t.anyRefused():
		return fleet.SyncFailed, kept
	case tomb, n.syncing > 0:
		return fleet.SyncSyncing, joinNonEmpty("; ", t.waitingFor(), kept)
	case t.work.offlineCopy != nil && !t.offlineCopyDone():
		return fleet.SyncSyncing, kept // the inventory is about to be written
	case t.recovers():
		return fleet.SyncSyncing, kept
	case n.changed > 0 && t.isDryRun():
		return fleet.SyncOutOfSync, joinNonEmpty("; ", t.dryRunSummary(n), kept)
	case n.changed > 0:
		return fleet.SyncOutOfSync, joinNonEmpty("; ", n.change+others(n.changed), n.heldNote(), kept)
	case n.held > 0:
		return fleet.SyncOutOfSync, joinNonEmpty("; ", n.heldNote(), t.lateObject(), t.unknownStates(), kept)
	}
	return fleet.SyncSynced, joinNonEmpty("; ", t.lateObject(), t.unknownStates(), kept)
}

// endSummary describes how a target ended.
func (t *target) endSummary() (fleet.SyncState, string) {
	switch detached := t.work.desired.State.Detached; {
	case detached && t.end.noInventory:
		return fleet.SyncDetached, "no inventory was found here: nothing was to be let go of"
	case detached:
		return fleet.SyncDetached, ""
	case t.end.noInventory:
		return fleet.SyncDeleted, noInventoryMessage
	case len(t.end.released) > 0:
		return fleet.SyncDeleted, "kept, and not managed any more: " + describeReleased(t.end.released)
	}
	return fleet.SyncDeleted, ""
}

// progressSummary describes a target that has not tried every object yet. If a failed object keeps the others waiting,
// the target has failed.
func (t *target) progressSummary(n tally) (fleet.SyncState, string) {
	state := fleet.SyncSyncing
	if n.failed > 0 && t.progress().stuck() {
		state = fleet.SyncFailed
	}
	failure := n.failure
	if failure != "" {
		failure += others(n.failed)
	}
	return state, joinNonEmpty("; ", failure, t.lateObject(), t.waitNote())
}

// unknownStates returns how many objects have an unknown state at present, and why.
func (t *target) unknownStates() string {
	count, why := 0, ""
	for _, o := range t.order {
		if o.unknownState() != "" && o.leaving == nil {
			count++
			why = cmp.Or(why, o.unknownState())
		}
	}
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("the state of %d of %d objects is not known: %s", count, len(t.order), why)
}

// anyRefused reports whether a leaving object must not be touched by this agent.
func (t *target) anyRefused() bool {
	return slices.ContainsFunc(t.order, func(o *object) bool { return o.refused() })
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
	count := 0
	for _, o := range t.order {
		if o.leaving == nil || o.leaving.reason == "" {
			continue
		}
		if count++; count <= limit {
			names = append(names, o.ref.String())
			if !slices.Contains(reasons, o.leaving.reason) {
				reasons = append(reasons, o.leaving.reason)
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
			return fmt.Sprintf("%s %s", o.ref, o.health.note)
		}
	}
	return ""
}

func joinNonEmpty(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), separator)
}
