package rollout

import (
	"context"
	"errors"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// StopRun stops the agents that a run still waits for, if the run has pinned its deployment. A suspension does
// not delay it, because nothing is sent to the others.
func (st *Reconciler) StopRun(ctx context.Context, run fleet.SyncRun) error {
	d, err := st.tx.Deployments().Get(ctx, run.TenantID, run.DeploymentID)
	if errors.Is(err, store.ErrNotFound) || err == nil && (!d.DeletedAt.IsZero() || d.Pin.Revision != run.Kept || run.Kept == 0) {
		return nil
	}
	if err != nil {
		return err
	}
	waiting, err := st.tx.Runs().Targets(ctx, run.TenantID, run.ID)
	if err != nil {
		return err
	}
	st.stopped = map[fleet.TargetID]bool{}
	for _, rt := range waiting {
		if !rt.Done || rt.Failed { // an agent retries failed objects
			st.stopped[rt.TargetID] = true
		}
	}
	d.Pin.TerminatedRun = run.Seq
	if err := st.tx.Deployments().Update(ctx, d); err != nil {
		return err
	}
	d.SpecRevision++
	targets, err := st.tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	return st.writeDesired(ctx, &d, slices.DeleteFunc(targets, func(t fleet.Target) bool { return !st.stopped[t.ID] }))
}

// stops reports whether a target must not change because the run that chose its bundle was terminated before
// the target had finished. It gets the bundle as a dry run, which reports what is missing. A target that had
// finished continues to correct drift.
func (w choice) stops(t fleet.Target, bundle fleet.Rendered) bool {
	return w.terminated && (w.stopped[t.ID] || t.Desired.Policy.DryRun || t.Desired.Digest != bundle.Digest)
}
