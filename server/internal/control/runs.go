package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// maxOpenRuns bounds how many runs of one deployment may wait.
const maxOpenRuns = 100

// CreateRun requests a sync. It starts when the runs before it are done and nothing holds the
// deployment. A revision other than the deployment's own pins an automated deployment there, as a
// rollback does, until it is released.
func (s *Service) CreateRun(ctx context.Context, p auth.Principal, tenant, deployment string, req CreateRun) (fleet.SyncRun, error) {
	if err := checkRevision("revision", req.Revision); err != nil {
		return fleet.SyncRun{}, err
	}
	return s.createRun(ctx, p, tenant, deployment, func(_ store.Tx, d fleet.Deployment) (fleet.SyncRun, error) {
		run := fleet.SyncRun{Kind: fleet.RunSync, Revision: req.Revision}
		if d.Pin.Active() && !d.Policy.Manual && !pins(d, run) {
			return run, fleet.Conflict("deployment %q is pinned to revision %d: release it, or name the revision to sync to", d.Name, d.Pin.Revision)
		}
		return run, nil
	})
}

// createRun puts a run behind the others of its deployment, with an operation that follows it.
func (s *Service) createRun(ctx context.Context, p auth.Principal, tenant, deployment string, ask func(store.Tx, fleet.Deployment) (fleet.SyncRun, error)) (fleet.SyncRun, error) {
	var run fleet.SyncRun
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, d, err := s.deployableDeployment(ctx, tx, p, tenant, deployment)
		if err != nil {
			return err
		}
		if run, err = ask(tx, d); err != nil {
			return err
		}
		open, err := tx.Runs().Open(ctx, t.ID, d.ID)
		if err != nil {
			return err
		}
		replaced := supersededBy(run, open)
		if len(open)-len(replaced) >= maxOpenRuns {
			return fleet.Conflict("%d runs of deployment %q wait already: terminate some", len(open), d.Name)
		}
		if err := s.enqueue(ctx, tx, p, d, &run); err != nil {
			return err
		}
		if err := s.supersede(ctx, tx, replaced, run); err != nil {
			return err
		}
		if err := s.settleTargets(ctx, tx, d, nil); err != nil {
			return err
		}
		run, err = tx.Runs().Get(ctx, t.ID, run.ID)
		return err
	})
	return run, err
}

func (s *Service) enqueue(ctx context.Context, tx store.Tx, p auth.Principal, d fleet.Deployment, run *fleet.SyncRun) error {
	action := actionSync
	if run.Kind == fleet.RunRollback {
		action = actionRollback
	}
	operation, err := s.openOperation(ctx, tx, p, fleet.Operation{
		TenantID: d.TenantID, Action: action, Kind: "deployment", Name: d.Name, ResourceID: string(d.ID),
	})
	if err != nil {
		return err
	}
	run.ID, run.TenantID, run.DeploymentID, run.Deployment = fleet.NewRunID(), d.TenantID, d.ID, d.Name
	run.Phase, run.By, run.CreatedAt, run.OperationID = fleet.RunPending, p.Name, s.cfg.Now(), operation.ID
	if run.Seq, err = tx.Runs().Create(ctx, *run); err != nil {
		return err
	}
	detail := "to " + run.Revision
	switch {
	case run.Kind == fleet.RunRollback:
		detail = fmt.Sprintf("to revision %d", run.Kept)
	case run.Revision == "":
		detail = "to the newest commit"
	}
	return s.audit(ctx, tx, p, fleet.AuditEvent{
		TenantID: d.TenantID, Action: action, Kind: "deployment", Name: d.Name, ID: string(d.ID), Detail: detail,
	})
}

// supersededBy returns the runs among open that a new run ends. A rollback ends the syncs before it: it takes the
// deployment away from what they sync to, and must not wait for an agent that does not answer to them.
func supersededBy(run fleet.SyncRun, open []fleet.SyncRun) []fleet.SyncRun {
	if run.Kind != fleet.RunRollback {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(open), func(other fleet.SyncRun) bool { return other.Kind != fleet.RunSync })
}

// supersede terminates runs because another one replaces them.
func (s *Service) supersede(ctx context.Context, tx store.Tx, replaced []fleet.SyncRun, by fleet.SyncRun) error {
	why := fmt.Sprintf("superseded by rollback run %d to revision %d, started by %s", by.Seq, by.Kept, by.By)
	st := s.newSettler(tx)
	for _, run := range replaced {
		if err := st.finish(ctx, run, fleet.RunTerminated, why); err != nil {
			return err
		}
	}
	return nil
}

// Runs lists the runs of a deployment, newest first.
func (s *Service) Runs(ctx context.Context, p auth.Principal, tenant, deployment string, page store.Page) ([]fleet.SyncRun, error) {
	var out []fleet.SyncRun
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		d, err := tx.Deployments().ByName(ctx, t.ID, deployment)
		if err != nil {
			return fmt.Errorf("deployment %q: %w", deployment, err)
		}
		out, err = tx.Runs().OfDeployment(ctx, t.ID, d.ID, page)
		return err
	})
	return out, err
}

// Run returns one run.
func (s *Service) Run(ctx context.Context, p auth.Principal, tenant string, id fleet.RunID) (fleet.SyncRun, error) {
	var out fleet.SyncRun
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		if out, err = tx.Runs().Get(ctx, t.ID, id); err != nil {
			return fmt.Errorf("sync run %q: %w", id, err)
		}
		return nil
	})
	return out, err
}

// UpdateRun changes what a run that has not started shall sync to.
func (s *Service) UpdateRun(ctx context.Context, p auth.Principal, tenant string, id fleet.RunID, req UpdateRun, match Match) (fleet.SyncRun, error) {
	if err := checkRevision("revision", req.Revision); err != nil {
		return fleet.SyncRun{}, err
	}
	return s.changeRun(ctx, p, tenant, id, "run.update", match, func(tx store.Tx, run *fleet.SyncRun) error {
		if run.Phase != fleet.RunPending {
			return fleet.Conflict("run %d has started and can no longer be changed: it is %s", run.Seq, run.Phase)
		}
		if run.Kind != fleet.RunSync {
			return fleet.Conflict("run %d is a rollback: terminate it and start another", run.Seq)
		}
		if run.Revision == req.Revision {
			return nil
		}
		run.Revision, run.Message = req.Revision, ""
		return tx.Runs().Update(ctx, *run)
	})
}

func (s *Service) changeRun(ctx context.Context, p auth.Principal, tenant string, id fleet.RunID, action string, match Match, change func(store.Tx, *fleet.SyncRun) error) (fleet.SyncRun, error) {
	var run fleet.SyncRun
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := deployable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		if run, err = tx.Runs().Get(ctx, t.ID, id); err != nil {
			return fmt.Errorf("sync run %q: %w", id, err)
		}
		if err := match.checkState(RunState(run)); err != nil {
			return err
		}
		if err := change(tx, &run); err != nil {
			return err
		}
		if err := s.audit(ctx, tx, p, fleet.AuditEvent{
			TenantID: t.ID, Action: action, Kind: "run", Name: run.Deployment, ID: string(run.ID), Detail: fmt.Sprintf("run %d", run.Seq),
		}); err != nil {
			return err
		}
		run, err = tx.Runs().Get(ctx, t.ID, id)
		return err
	})
	return run, err
}

// endRuns terminates the runs of a deployment that is being deleted.
func (s *Service) endRuns(ctx context.Context, tx store.Tx, d fleet.Deployment, why string) error {
	open, err := tx.Runs().Open(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	st := s.newSettler(tx)
	for _, run := range open {
		if err := st.finish(ctx, run, fleet.RunTerminated, why); err != nil {
			return err
		}
	}
	return nil
}

// expireRuns fails the runs that have waited for their targets for too long: the backstop for agents
// that never come back.
func (s *Service) expireRuns(ctx context.Context) error {
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
		return fmt.Errorf("looking for sync runs that wait too long: %w", err)
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

func (s *Service) expire(ctx context.Context, run fleet.SyncRun, deadline time.Time) error {
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
		message := fmt.Sprintf("%s did not answer within %s, and %d failed", wording.Count(open, "target"), s.runTimeout(), failed)
		if err := s.newSettler(tx).finish(ctx, run, fleet.RunFailed, message); err != nil {
			return err
		}
		return s.nextRun(ctx, tx, run.TenantID, run.DeploymentID)
	})
}
