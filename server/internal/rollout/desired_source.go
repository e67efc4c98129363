package rollout

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// desired returns the desired state of a target of d with the chosen bundle. A bundle that was chosen under
// another source than the one in force, by a pin or by the last run of a manual deployment, keeps its namespace
// and its policy, until a run, a rollback, or a release chooses one under this source.
func (w choice) desired(d fleet.Deployment, t fleet.Target, bundle fleet.Rendered) fleet.Desired {
	source := w.source
	if !w.chosen {
		source = t.Desired.SourceRevision
	}
	if source == d.SourceRevision {
		policy := d.Policy
		policy.DryRun = policy.DryRun || w.stops(t, bundle)
		return fleet.Desired{Digest: bundle.Digest, Commit: bundle.Commit, Namespace: d.Namespace, Policy: policy, SourceRevision: source}
	}
	was := t.Desired
	return fleet.Desired{
		Digest: was.Digest, Commit: was.Commit, Namespace: was.Namespace, Policy: w.grant.Applied(was.Policy), SourceRevision: was.SourceRevision,
	}
}

// sameDesired records that the current state of a target is also the desired one under the source in force.
// Agents see no difference.
func (st *Reconciler) sameDesired(ctx context.Context, t *fleet.Target, want fleet.Desired) error {
	if t.Desired.SourceRevision == want.SourceRevision {
		return nil
	}
	t.Desired.SourceRevision = want.SourceRevision
	return st.tx.Targets().SetSourceRevision(ctx, t.TenantID, t.ID, want.SourceRevision)
}
