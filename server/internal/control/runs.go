package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// maxOpenRuns limits the waiting runs of one deployment.
const maxOpenRuns = 100

// CreateRun requests a sync. It starts when the runs before it are done and the deployment is not suspended. A
// revision other than that of the deployment pins an automated deployment there, like a rollback, until it is
// released. A run for a Kubernetes resource releases a pinned deployment if it names no other revision.
func (s *Service) CreateRun(ctx context.Context, p auth.Principal, tenant, deployment string, req CreateRun) (fleet.SyncRun, error) {
	if err := checkRevision("revision", req.Revision); err != nil {
		return fleet.SyncRun{}, err
	}
	return s.createRun(ctx, p, tenant, deployment, func(tx store.Tx, d fleet.Deployment) (fleet.SyncRun, error) {
		run := fleet.SyncRun{Kind: fleet.RunSync, Revision: req.Revision}
		if p.Owner.IsZero() && rollout.PinsDeployment(d, run) {
			if err := checkOwner(ctx, tx, p, deploymentResource(d), "synced to another revision"); err != nil {
				return run, err
			}
		}
		if d.Pin.Active() && !d.Policy.Manual && !rollout.PinsDeployment(d, run) {
			if !p.Owner.IsZero() {
				return run, s.unpin(ctx, tx, p, d)
			}
			return run, fleet.Conflict("deployment %q is pinned to revision %d: release it, or specify the revision to sync to", d.Name, d.Pin.Revision)
		}
		return run, nil
	})
}

// createRun adds a run after the others of its deployment, with an operation.
func (s *Service) createRun(ctx context.Context, p auth.Principal, tenant, deployment string, ask func(store.Tx, fleet.Deployment) (fleet.SyncRun, error)) (fleet.SyncRun, error) {
	var run fleet.SyncRun
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, d, err := s.deployableDeployment(ctx, tx, p, tenant, deployment)
		if err != nil {
			return err
		}
		if err := notUpgrading(ctx, tx, d); err != nil {
			return err
		}
		if run, err = ask(tx, d); err != nil {
			return err
		}
		if d, err = tx.Deployments().Get(ctx, t.ID, d.ID); err != nil { // ask may have changed it
			return err
		}
		run, err = s.addRun(ctx, tx, p, d, run)
		return err
	})
	return run, err
}

// addRun is createRun without authorization, in the transaction of its caller.
func (s *Service) addRun(ctx context.Context, tx store.Tx, p auth.Principal, d fleet.Deployment, run fleet.SyncRun) (fleet.SyncRun, error) {
	open, err := tx.Runs().Open(ctx, d.TenantID, d.ID)
	if err != nil {
		return run, err
	}
	replaced := supersededBy(run, open)
	if len(open)-len(replaced) >= maxOpenRuns {
		return run, fleet.Conflict("%d runs of deployment %q are already waiting: terminate some", len(open), d.Name)
	}
	if err := s.enqueue(ctx, tx, p, d, &run); err != nil {
		return run, err
	}
	if err := own(ctx, tx, p, runResource(run)); err != nil {
		return run, err
	}
	if err := s.planner.Supersede(ctx, tx, replaced, run); err != nil {
		return run, err
	}
	if err := s.planner.ReconcileTargets(ctx, tx, d, nil); err != nil {
		return run, err
	}
	return tx.Runs().Get(ctx, d.TenantID, run.ID)
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

// supersededBy returns the open runs that a new run ends. A rollback ends earlier syncs: it moves the
// deployment away from their revisions, and must not wait for an agent that does not respond to them.
func supersededBy(run fleet.SyncRun, open []fleet.SyncRun) []fleet.SyncRun {
	if run.Kind != fleet.RunRollback {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(open), func(other fleet.SyncRun) bool { return other.Kind != fleet.RunSync })
}

// Runs lists the runs of a deployment, newest first.
func (s *Service) Runs(ctx context.Context, p auth.Principal, tenant, deployment string, f store.RunFilter) ([]fleet.SyncRun, error) {
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
		out, err = tx.Runs().OfDeployment(ctx, t.ID, d.ID, f)
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

// UpdateRun changes the revision of a run that has not started.
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
		if err := checkOwner(ctx, tx, p, runResource(run), "changed"); err != nil {
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
