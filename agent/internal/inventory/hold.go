package inventory

import (
	"encoding/json"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Hold is why the deletion of an object that has left the source waits until a user confirms it by name. The inventory
// keeps it, so that neither a restart nor a later version ends it: only a confirmation does, or the return of the object
// to the source.
type Hold string

const (
	// HeldOverLimit means: it left together with more objects than the limit of the policy allows.
	HeldOverLimit Hold = "OverLimit"
	// HeldAfterRecovery means: it was missing from the first version after a recovery of the server, which did not know what this
	// cluster has: a backup was restored, or the agent was enrolled again.
	HeldAfterRecovery Hold = "AfterRecovery"
	// HeldLeftover means: an earlier installation of the deployment left it, and this one has never had it in its source.
	HeldLeftover Hold = "Leftover"
	// HeldByKindFilter means: it left while the kind filter of the agent excluded its kind. A filter that allows the kind
	// again must not delete it.
	HeldByKindFilter Hold = "KindFilter"
)

// OutsideChange reports whether a held object does not count for the prune limit: the change of the source that is being
// applied did not remove it.
func (h Hold) OutsideChange() bool {
	return h == HeldAfterRecovery || h == HeldByKindFilter || h == HeldLeftover
}

// unseen reports whether a user who deletes the deployment may not know of a held object.
func (h Hold) unseen() bool { return h == HeldAfterRecovery || h == HeldLeftover }

// Cause returns why an object is held; zero when it is not. A hold of a newer build is held like one over the limit.
func (h Hold) Cause() fleet.Cause {
	switch h {
	case "":
		return fleet.Cause{}
	case HeldAfterRecovery:
		return fleet.Cause{Reason: fleet.ReasonHeldAfterRecovery,
			Message: "it was missing when the server recovered (a backup was restored, or the agent was enrolled again), and its deletion was not confirmed since"}
	case HeldLeftover:
		return fleet.Cause{Reason: fleet.ReasonHeldLeftover, Message: "an earlier installation of the deployment left it, and its deletion was not confirmed since"}
	case HeldByKindFilter:
		return fleet.Cause{Reason: fleet.ReasonHeldByKindFilter,
			Message: "it left while the kind filter of the agent excluded its kind, and its deletion was not confirmed since"}
	}
	return fleet.Cause{Reason: fleet.ReasonOverPruneLimit, Message: "it was among too many to be deleted at once, and was not confirmed since"}
}

// UnmarshalJSON also reads what earlier builds wrote: true, for the one reason that they had.
func (h *Hold) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "true":
		*h = HeldOverLimit
		return nil
	case "false":
		*h = ""
		return nil
	}
	var word string
	err := json.Unmarshal(text, &word)
	*h = Hold(word)
	return err
}
