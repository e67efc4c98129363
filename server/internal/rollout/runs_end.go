package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// Supersede terminates runs because another one replaces them.
func (s *Planner) Supersede(ctx context.Context, tx store.Tx, replaced []fleet.SyncRun, by fleet.SyncRun) error {
	why := fleet.Cause{Reason: fleet.ReasonSuperseded, Message: fmt.Sprintf("superseded by rollback run %d to revision %d, started by %s", by.Seq, by.Kept, by.By)}
	st := s.NewReconciler(tx)
	for _, run := range replaced {
		if err := st.FinishRun(ctx, run, fleet.RunTerminated, why); err != nil {
			return err
		}
	}
	return nil
}

// EndRuns terminates the runs of a deployment that is being deleted.
func (s *Planner) EndRuns(ctx context.Context, tx store.Tx, d fleet.Deployment, why fleet.Cause) error {
	open, err := tx.Runs().Open(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	st := s.NewReconciler(tx)
	for _, run := range open {
		if err := st.FinishRun(ctx, run, fleet.RunTerminated, why); err != nil {
			return err
		}
	}
	return nil
}

// ExpireRuns fails the runs that have waited too long for their targets: the fallback for agents that never
// return.
func (s *Planner) ExpireRuns(ctx context.Context) error {
	deadline := s.cfg.Now().Add(-s.runTimeout())
	var late []fleet.SyncRun
	err := s.store.View(ctx, func(tx store.Tx) error {
		open, err := tx.Runs().OpenAllTenants(ctx)
		for _, run := range open {
			if expired(run, deadline) {
				late = append(late, run)
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("searching for expired sync runs: %w", err)
	}
	for _, run := range late {
		if err := s.expire(ctx, run, deadline); err != nil {
			return fmt.Errorf("ending sync run %s: %w", run.ID, err)
		}
		s.cfg.Log.Warn("a sync run waited for too long", obs.KeyDeployment, run.Deployment, "run", run.Seq)
	}
	return nil
}

func expired(run fleet.SyncRun, deadline time.Time) bool {
	return run.Phase == fleet.RunRunning && run.StartedAt.Before(deadline)
}

func (s *Planner) expire(ctx context.Context, run fleet.SyncRun, deadline time.Time) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		run, err := tx.Runs().Get(ctx, run.TenantID, run.ID)
		if errors.Is(err, store.ErrNotFound) || (err == nil && !expired(run, deadline)) {
			return nil
		}
		if err != nil {
			return err
		}
		open, failed, err := tx.Runs().CountOpenTargets(ctx, run.TenantID, run.ID)
		if err != nil {
			return err
		}
		why := fleet.Cause{Reason: fleet.ReasonTimedOut, Message: fmt.Sprintf("%s did not finish within %s, and %d failed", wording.Count(open, "target"), s.runTimeout(), failed)}
		if err := s.NewReconciler(tx).FinishRun(ctx, run, fleet.RunFailed, why); err != nil {
			return err
		}
		return s.NextRun(ctx, tx, run.TenantID, run.DeploymentID)
	})
}
