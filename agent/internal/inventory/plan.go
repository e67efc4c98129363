package inventory

import (
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// Policy is everything that a Plan needs to know besides the objects. Its zero value deletes nothing.
type Policy struct {
	// Whole: the desired list is a complete, verified bundle, or a tombstone.
	Whole bool
	// Prune is the deployment's policy. A tombstone sets it: deleting the deployment is consent.
	Prune bool
	// Hold keeps everything in this version. Callers mark every object that has left as HeldAfterRecovery, which stays in
	// later versions.
	Hold bool
	// AllowEmpty accepts an empty desired list as meant. A tombstone sets it.
	AllowEmpty bool
	// Unsettled is how many desired objects are not in place yet.
	Unsettled int
	// Damaged names parts of the inventory that could not be read.
	Damaged []string
	// Pending means: the states of other deployments have not arrived yet. They may desire what is not desired here any more.
	Pending bool
	// Consent: the limit does not apply, because the deployment itself was edited. Objects that were held before stay held.
	// With a tombstone it means that a user has deleted the deployment.
	Consent bool
	// Tombstone: the deployment is deleted with its objects. No limit applies, and objects that were held before are deleted
	// as well. Protected kinds stay, and so do objects that are held after a recovery, unless a user has deleted the
	// deployment.
	Tombstone bool
	// HoldProtected keeps protected kinds of a tombstone until they are confirmed. Without it, they are released, and a
	// confirmation does not delete them.
	HoldProtected bool
	// Limit is how much may be deleted without being confirmed.
	Limit fleet.PruneLimit
	// Total is how many objects there were before the change, desired or not: Record.Base.
	Total int
	// Desired is how many objects are desired, and Gone how many are not any more and may be deleted.
	Desired, Gone int
	// Confirmed names, as ObjectRef.String does, the objects that a user wants deleted although the limit or their kind holds
	// them. It does not override any other reason.
	Confirmed []string
}

// Decision is what becomes of an object that is not desired any more.
type Decision struct {
	Cause fleet.Cause // why it is kept; zero when it is to be deleted. The message completes "kept: …".
	// Protected: a tombstone releases it, because it is kept for its kind or its hold and not for a reason that may pass.
	Protected bool
	// Waiting: it is kept only until the states of other deployments have arrived.
	Waiting bool
	// Confirmable: it is deleted when a user confirms it by name. Confirmed: a user has.
	Confirmable, Confirmed bool
	// Hold is why it stays held from now on, until it is confirmed; "" when nothing new holds it.
	Hold Hold
}

// Plan decides on objects that are not desired any more: which are deleted, and which are kept for what reason.
//
// An object that was held once stays held until it is confirmed, in any later version and with any limit: callers keep
// Decision.Hold in the entry, as Entry.Held. An object that a Plan releases for deletion is still checked against the
// live object before it is deleted.
type Plan struct {
	guard, limit                      fleet.Cause
	hold, waiting, tombstone, consent bool
	release                           bool // protected kinds
	confirmed                         map[string]bool
}

// NewPlan makes the plan for a policy.
func NewPlan(p Policy) Plan {
	out := Plan{guard: p.guard(), limit: p.limit(), hold: p.Hold, waiting: p.Pending, tombstone: p.Tombstone, consent: p.Consent}
	out.release = p.Tombstone && !p.HoldProtected
	if len(p.Confirmed) > 0 {
		out.confirmed = make(map[string]bool, len(p.Confirmed))
	}
	for _, name := range p.Confirmed {
		out.confirmed[name] = true
	}
	return out
}

// Decide decides on one object that is not desired any more. held is Entry.Held.
func (p Plan) Decide(ref fleet.ObjectRef, held Hold) Decision {
	switch {
	case !p.guard.IsZero():
		return Decision{Cause: p.guard}
	case p.waiting:
		return Decision{Waiting: true, Cause: WaitingForDeployments()}
	case p.hold:
		return Decision{Confirmable: true, Hold: HeldAfterRecovery, Cause: HeldAfterRecovery.Cause()}
	case p.confirmed[ref.String()] && (!p.release || !manifest.IsProtected(ref)):
		return Decision{Confirmed: true} // a deployment that goes releases what is kept in a Namespace, and must not delete it with that
	case manifest.IsProtected(ref):
		return Decision{Protected: p.release, Confirmable: true, Cause: fleet.Cause{Reason: fleet.ReasonProtectedKind,
			Message: ref.Kind + " is a protected kind, which is only deleted when that is confirmed by name, or by hand"}}
	case !p.limit.IsZero():
		return Decision{Confirmable: true, Hold: HeldOverLimit, Cause: p.limit}
	case held.unseen() && p.tombstone && !p.consent:
		return Decision{Protected: true, Confirmable: true, Cause: held.Cause()}
	case held != "" && !p.tombstone:
		return Decision{Confirmable: true, Cause: held.Cause()}
	}
	return Decision{}
}

// WaitingForDeployments returns the cause of an object that is kept until the states of other deployments have arrived.
func WaitingForDeployments() fleet.Cause {
	return fleet.Cause{Reason: fleet.ReasonWaitingForDeployments, Message: "other deployments of this agent have not arrived yet"}
}

// guard returns why nothing at all may be deleted; zero when objects may be deleted.
func (p Policy) guard() fleet.Cause {
	switch {
	case len(p.Damaged) > 0:
		return fleet.Cause{Reason: fleet.ReasonInventoryDamaged, Message: fmt.Sprintf(
			"the inventory cannot be read (ConfigMap %s); restore it, or delete every ConfigMap of the inventory of this target, and restart the agent", p.Damaged[0])}
	case !p.Whole:
		return fleet.Cause{Reason: fleet.ReasonBundleIncomplete, Message: "the bundle has not arrived whole"}
	case p.Desired == 0 && !p.AllowEmpty:
		return fleet.Cause{Reason: fleet.ReasonBundleEmpty, Message: "the bundle is empty and the deployment does not allow that"}
	case p.Unsettled > 0:
		return fleet.Cause{Reason: fleet.ReasonPruneBlocked, Message: fmt.Sprintf("nothing is pruned while %d of its objects could not be applied", p.Unsettled)}
	case !p.Prune:
		return fleet.Cause{Reason: fleet.ReasonPruneDisabled, Message: "pruning is off for this deployment"}
	}
	return fleet.Cause{}
}

// limit returns why too many objects have left to be deleted without a confirmation; zero when they have not. Objects that
// were held before count: they belong to the same change.
func (p Policy) limit() fleet.Cause {
	total := max(p.Total, p.Gone)
	if p.Tombstone || p.Consent || !p.Limit.Exceeded(p.Gone, total) {
		return fleet.Cause{}
	}
	return fleet.Cause{Reason: fleet.ReasonOverPruneLimit,
		Message: fmt.Sprintf("%d of %d objects have left the source at once; confirm those that are to be deleted", p.Gone, total)}
}
