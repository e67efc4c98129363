package rollout

import "github.com/kedge-dev/kedge/internal/fleet"

// repairs reports whether a target with the desired state gets a new version of it because a sync was
// requested: for a new version its agent corrects drift, which the policy may otherwise only report or ignore.
// A version that the agent has not acknowledged yet has the same effect, and with a dry run, or if the run has
// nothing for the target, nothing changes.
func (st *Reconciler) repairs(d fleet.Deployment, t fleet.Target) bool {
	return st.repair && !d.Policy.DryRun && t.Observed.Version == t.Desired.Version && st.failed[t.Variant] == ""
}
