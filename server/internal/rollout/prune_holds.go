package rollout

import "github.com/kedge-dev/kedge/internal/fleet"

// After a restore, and when an agent is enrolled again, a target is sent with HoldPrune: what its cluster holds
// and its source does not name is not deleted. The agent marks those objects as held in its inventory, and lists
// them as Held until a user confirms their deletion. When it says that it has done so, the marks protect the
// objects, and HoldPrune has to be sent no longer.

// KeepsPruneHold reports whether what comes next for a target has to hold its prune as what is desired now does,
// because the agent has not yet said that what is held is marked.
func KeepsPruneHold(t fleet.Target) bool { return t.Desired.HoldPrune && !marked(t) }

// marked reports whether the agent of a target that was sent with HoldPrune has marked what it holds. One that
// fails may not have written anything down, and a dry run never does.
func marked(t fleet.Target) bool {
	return t.Desired.Digest != "" && !t.Desired.Policy.DryRun && t.Observed.Version == t.Desired.Version && Done(t.Observed.Sync)
}

// Done reports whether an agent has done all that it can do about a version, and nothing has failed.
func Done(s fleet.SyncState) bool { return s == fleet.SyncSynced || s == fleet.SyncOutOfSync }
