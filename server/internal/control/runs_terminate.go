package control

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// TerminateRun ends a run, and the next one starts. Agents that have not finished the revision of a run that has
// pinned it stop: what they have applied stays, and they change nothing more until the next run or a release. A
// deployment that follows its source goes on to its newest commit: nothing but a suspension holds that back.
func (s *Service) TerminateRun(ctx context.Context, p auth.Principal, tenant string, id fleet.RunID, match Match) (fleet.SyncRun, error) {
	return s.changeRun(ctx, p, tenant, id, "run.terminate", match, func(tx store.Tx, run *fleet.SyncRun) error {
		if run.Phase == fleet.RunTerminated {
			return nil
		}
		if run.Phase.Done() {
			return fleet.Conflict("run %d is done: it has %s", run.Seq, strings.ToLower(string(run.Phase)))
		}
		st := s.newSettler(tx)
		if err := st.finish(ctx, *run, fleet.RunTerminated, "terminated by "+p.Name); err != nil {
			return err
		}
		if run.Phase == fleet.RunRunning {
			if err := st.stop(ctx, *run); err != nil {
				return err
			}
		}
		return s.nextRun(ctx, tx, run.TenantID, run.DeploymentID)
	})
}

// stop has the agents that a run still waits for change nothing more, if the run has pinned its deployment. A
// suspension does not delay it, because nothing is sent to the others.
func (st *settler) stop(ctx context.Context, run fleet.SyncRun) error {
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
		if !rt.Done || rt.Failed { // an agent tries again what has failed
			st.stopped[rt.TargetID] = true
		}
	}
	d.Pin.TerminatedRun = run.Seq
	if err := st.tx.Deployments().Update(ctx, d); err != nil {
		return err
	}
	d.Spec++
	targets, err := st.tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	return st.give(ctx, &d, slices.DeleteFunc(targets, func(t fleet.Target) bool { return !st.stopped[t.ID] }))
}

// stops reports whether a target changes nothing because the run that has chosen its bundle was terminated before the
// target had finished. It gets the bundle as a dry run, which says what is missing. A target that had finished it goes
// on to correct drift.
func (w wish) stops(t fleet.Target, bundle fleet.Rendered) bool {
	return w.terminated && (w.stopped[t.ID] || t.Desired.Policy.DryRun || t.Desired.Digest != bundle.Digest)
}
