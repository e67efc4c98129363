package control

import (
	"context"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// TerminateRun ends a run, and the next one starts. If the run pinned its revision, agents that have not
// finished it stop: applied objects stay, and the agents change nothing until the next run or a release. A
// deployment that follows its source continues with its newest commit, unless it is suspended.
func (s *Service) TerminateRun(ctx context.Context, p auth.Principal, tenant string, id fleet.RunID, match Match) (fleet.SyncRun, error) {
	return s.changeRun(ctx, p, tenant, id, "run.terminate", match, func(tx store.Tx, run *fleet.SyncRun) error {
		if run.Phase == fleet.RunTerminated {
			return nil
		}
		if run.Phase.Done() {
			return fleet.Conflict("run %d is done: it has %s", run.Seq, strings.ToLower(string(run.Phase)))
		}
		st := s.planner.NewReconciler(tx)
		if err := st.FinishRun(ctx, *run, fleet.RunTerminated, fleet.Cause{Reason: fleet.ReasonTerminatedByUser, Message: "terminated by " + p.Name}); err != nil {
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
