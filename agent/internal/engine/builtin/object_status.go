package builtin

import (
	"cmp"
	"fmt"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/watch"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// describeObject describes one object, and what it waits for.
func (t *target) describeObject(o *object) fleet.ObjectStatus {
	out := o.status()
	switch on := t.waitsFor(o); {
	case on != nil:
		out.Reason, out.Message = fleet.ReasonDependencyNotReady, fmt.Sprintf("waits for %s to be ready", on.ref)
	case out.Reason == fleet.ReasonPruning && t.work.desired.State.Detached:
		out.Reason = fleet.ReasonDetaching
	}
	return out
}

// status describes one object.
func (o *object) status() fleet.ObjectStatus {
	state, why := o.syncState()
	out := fleet.ObjectStatus{ObjectRef: o.ref, Sync: state, Health: o.health.status, Reason: why.Reason, Message: why.Message}
	switch {
	case out.Health != "":
	case o.leaving == nil && o.retry.failure.IsZero():
		out.Health = fleet.HealthInProgress
	default:
		out.Health = fleet.HealthUnknown
	}
	switch unknown := o.unknownState(); {
	case out.Sync != fleet.SyncSynced:
	case !unknown.IsZero():
		out.Health, out.Reason, out.Message = fleet.HealthUnknown, unknown.Reason, unknown.Message
	case o.watch.Reason == watch.Forbidden:
		if out.Reason == fleet.ReasonSynced {
			out.Reason = fleet.ReasonNotWatched
		}
		out.Message = joinNonEmpty("; ", out.Message, "not watched, so that drift and health are noticed late: "+o.watch.Message)
	}
	return out
}

// syncState returns the sync state of an object and its cause, as far as its watch does not matter.
func (o *object) syncState() (fleet.SyncState, fleet.Cause) {
	why := o.explanation()
	switch {
	case !o.retry.failure.IsZero():
		return fleet.SyncFailed, o.retry.failure
	case !o.preview.IsZero():
		return fleet.SyncOutOfSync, o.preview
	case !o.drift.reported.IsZero():
		return fleet.SyncOutOfSync, o.drift.reported
	case o.phase == phaseReplacing:
		return fleet.SyncSyncing, fleet.Cause{Reason: fleet.ReasonReplacing,
			Message: joinNonEmpty("; ", "is replaced, because "+o.replaced+" cannot be changed", why.Message)}
	case o.inPlace(), o.phase == phaseCompared:
		why.Reason = cmp.Or(why.Reason, fleet.ReasonSynced)
		if o.health.autoscaler != "" {
			why.Message = joinNonEmpty("; ", why.Message, "replicas are set by "+o.health.autoscaler)
		}
		return fleet.SyncSynced, why
	case o.drift.delayed:
		return fleet.SyncSyncing, fleet.Cause{Reason: fleet.ReasonDriftRepeats,
			Message: "is changed again and again by something else; restored less and less often"}
	case o.leaving != nil:
		return o.leavingState()
	}
	return fleet.SyncSyncing, fleet.Cause{Reason: fleet.ReasonApplying, Message: why.Message}
}

// leavingState returns the sync state of an object that is not desired any more, and its cause.
func (o *object) leavingState() (fleet.SyncState, fleet.Cause) {
	const gone = "is not in the bundle any more"
	why := o.leaving.cause
	switch {
	case why.IsZero():
		return fleet.SyncSyncing, fleet.Cause{Reason: fleet.ReasonPruning, Message: cmp.Or(o.explanation().Message, gone)}
	case o.leaving.confirmable:
		return fleet.SyncHeld, fleet.Cause{Reason: why.Reason, Message: gone + "; held: " + why.Message}
	case o.leaving.waits:
		return fleet.SyncSyncing, fleet.Cause{Reason: why.Reason, Message: gone + "; kept for now: " + why.Message}
	}
	return fleet.SyncSynced, fleet.Cause{Reason: why.Reason, Message: gone + "; kept: " + why.Message}
}

// unknownState returns why the state of the object is not known at present; zero when it is known.
func (o *object) unknownState() fleet.Cause {
	if o.watch.Reason == watch.Stale {
		return fleet.Cause{Reason: fleet.ReasonNotReadable, Message: o.watch.Message}
	}
	return o.reread.failure
}
