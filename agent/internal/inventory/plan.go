package inventory

import (
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// Policy is everything that a Plan needs to know beyond the objects. Its zero value deletes nothing.
type Policy struct {
	// Whole says that the desired list is a complete, verified bundle, or a tombstone.
	Whole bool
	// Prune is the deployment's policy. A tombstone sets it: deleting the deployment is consent.
	Prune bool
	// Hold keeps everything this time. Callers mark every object that has left as HeldAfterRecovery, which
	// outlasts this version.
	Hold bool
	// AllowEmpty accepts an empty desired list as meant. A tombstone sets it.
	AllowEmpty bool
	// Unsettled is how many desired objects are not in place yet.
	Unsettled int
	// Damaged names parts of the inventory that could not be read.
	Damaged []string
	// Pending says that there are other deployments which have not said yet what they desire: it may
	// be what is no longer desired here.
	Pending bool
	// Consent says that the limit does not hold this time: the deployment itself was edited. What was held
	// before stays held. Of a tombstone it says that a user has deleted the deployment.
	Consent bool
	// Tombstone says that the deployment is deleted, or leaves and takes everything with it: no limit holds,
	// and what was held before goes as well. Protected kinds stay, and so does what is held since the server recovered,
	// unless a user has deleted the deployment.
	Tombstone bool
	// Limit is how much may be deleted without being confirmed.
	Limit fleet.PruneLimit
	// Total is how many objects there were before the change, desired or not: Record.Base. What the change
	// adds makes it no smaller.
	Total int
	// Desired is how many objects are desired, and Gone how many are not any more and may be deleted.
	Desired, Gone int
	// Confirmed names, as ObjectRef.String does, what a user wants deleted although it is held by the
	// limit or for its kind. It is no answer to a doubt.
	Confirmed []string
}

// Decision is what becomes of an object that is no longer desired.
type Decision struct {
	Reason string // completes "kept: …"; "" when it is to be deleted
	// Protected says that it is kept for what it is, not because of a doubt that may pass.
	Protected bool
	// Waiting says that it is kept only until the others have said what they desire.
	Waiting bool
	// Confirmable says that it is deleted when a user confirms it by name, and Confirmed that a user has.
	Confirmable, Confirmed bool
	// Hold is why it stays held from now on, until it is confirmed; "" when nothing new holds it.
	Hold Hold
}

// Plan decides on what is no longer desired: what is to be deleted and what is kept, with the reason.
//
// What was held once stays held, whatever the limit says later and whatever versions come, until it is
// confirmed: callers keep Verdict.Hold in the entry, as Entry.Held. What a Plan lets through is still checked one by
// one against the live object before it is deleted.
type Plan struct {
	why, limit                        string
	hold, waiting, tombstone, consent bool
	confirmed                         map[string]bool
}

// NewPlan makes the plan of a policy.
func NewPlan(p Policy) Plan {
	out := Plan{why: p.guard(), limit: p.limit(), hold: p.Hold, waiting: p.Pending, tombstone: p.Tombstone, consent: p.Consent}
	if len(p.Confirmed) > 0 {
		out.confirmed = make(map[string]bool, len(p.Confirmed))
	}
	for _, name := range p.Confirmed {
		out.confirmed[name] = true
	}
	return out
}

// Decide says what becomes of one object that is no longer desired. held is Entry.Held.
func (p Plan) Decide(ref fleet.ObjectRef, held Hold) Decision {
	switch {
	case p.why != "":
		return Decision{Reason: p.why}
	case p.waiting:
		return Decision{Waiting: true, Reason: "other deployments of this agent have not arrived yet"}
	case p.hold:
		return Decision{Confirmable: true, Hold: HeldAfterRecovery, Reason: HeldAfterRecovery.String()}
	case p.confirmed[ref.String()] && (!p.tombstone || !manifest.IsProtected(ref)):
		return Decision{Confirmed: true} // a deployment that goes releases what is kept in a Namespace, and must not delete it with that
	case manifest.IsProtected(ref):
		return Decision{Protected: true, Confirmable: true, Reason: ref.Kind + " is a protected kind, which is only deleted when that is confirmed by name, or by hand"}
	case p.limit != "":
		return Decision{Confirmable: true, Hold: HeldOverLimit, Reason: p.limit}
	case held == HeldAfterRecovery && p.tombstone && !p.consent:
		return Decision{Protected: true, Confirmable: true, Reason: held.String()}
	case held != "" && !p.tombstone:
		return Decision{Confirmable: true, Reason: held.String()}
	}
	return Decision{}
}

// guard returns why nothing at all may be deleted, or "".
func (p Policy) guard() string {
	switch {
	case len(p.Damaged) > 0:
		return fmt.Sprintf("the inventory cannot be read (ConfigMap %s); restore it, or delete every ConfigMap of the inventory of this target, and restart the agent", p.Damaged[0])
	case !p.Whole:
		return "the bundle has not arrived whole"
	case p.Desired == 0 && !p.AllowEmpty:
		return "the bundle is empty and the deployment does not allow that"
	case p.Unsettled > 0:
		return fmt.Sprintf("nothing is pruned while %d of its objects could not be applied", p.Unsettled)
	case !p.Prune:
		return "pruning is off for this deployment"
	}
	return ""
}

// limit returns why what has gone is too much to be deleted unasked, or "". What was held before counts:
// it is the same change, seen again.
func (p Policy) limit() string {
	total := max(p.Total, p.Gone)
	if p.Tombstone || p.Consent || !p.Limit.Exceeded(p.Gone, total) {
		return ""
	}
	return fmt.Sprintf("%d of %d objects have left the source at once; confirm those that are to be deleted", p.Gone, total)
}
