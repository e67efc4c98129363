package rollout

import "github.com/kedge-dev/kedge/internal/fleet"

// After a restore, and when an agent is enrolled again, a target is sent with HoldPrune: objects in the cluster
// that its source does not name are not deleted. The agent marks those objects as held in its inventory, and
// lists them as Held until a user confirms their deletion. When it reports that, the marks protect the objects,
// and HoldPrune is no longer needed.

// KeepsPruneHold reports whether the next state of a target must hold its prune like the current one, because
// the agent has not yet reported that the held objects are marked.
func KeepsPruneHold(t fleet.Target) bool { return t.Desired.HoldPrune && !marked(t) }

// marked reports whether the agent of a target with HoldPrune has marked its objects. After a failure it may
// not have written anything, and a dry run never does.
func marked(t fleet.Target) bool {
	return t.Desired.Digest != "" && !t.Desired.Policy.DryRun && t.Observed.Version == t.Desired.Version && Done(t.Observed.Sync)
}

// Done reports whether an agent has finished a version without a failure.
func Done(s fleet.SyncState) bool { return s == fleet.SyncSynced || s == fleet.SyncOutOfSync }
