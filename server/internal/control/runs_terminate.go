package control

import (
	"context"
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
		st := s.planner.NewReconciler(tx)
		if err := st.FinishRun(ctx, *run, fleet.RunTerminated, "terminated by "+p.Name); err != nil {
			return err
		}
		if run.Phase == fleet.RunRunning {
			if err := st.StopRun(ctx, *run); err != nil {
				return err
			}
		}
		return s.planner.NextRun(ctx, tx, run.TenantID, run.DeploymentID)
	})
}
