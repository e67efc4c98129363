package rollout

import "github.com/kedge-dev/kedge/internal/fleet"

// repairs reports whether a target that has what it shall have gets a new version of the same because a sync was
// asked for: with a new version its agent puts right what was changed in the cluster, which the policy may have it only
// report or ignore otherwise. A version that the agent has not answered to yet does the same, and where a dry run is
// asked for, or the run has nothing for the target, nothing is to change.
func (st *Reconciler) repairs(d fleet.Deployment, t fleet.Target) bool {
	return st.repair && !d.Policy.DryRun && t.Observed.Version == t.Desired.Version && st.failed[t.Variant] == ""
}
