package rollout

import (
	"context"
	"errors"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// Released reports whether the agent of a detached target has reported that it no longer manages it.
func Released(t fleet.Target) bool {
	return t.Desired.Detached && t.Observed.Sync == fleet.SyncDetached && t.Observed.Version == t.Desired.Version
}

// removeReleased removes a released target, if a deleted deployment waits for it. Otherwise it stays listed.
func (s *Planner) removeReleased(ctx context.Context, tx store.Tx, t fleet.Target) error {
	d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
	if err != nil || d.DeletedAt.IsZero() {
		return err
	}
	return s.TargetGone(ctx, tx, t)
}

// TargetGone removes a target whose tombstone was carried out, or can never be, and with the last one of a
// deleted deployment the deployment.
func (s *Planner) TargetGone(ctx context.Context, tx store.Tx, t fleet.Target) error {
	d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
	if err != nil {
		return err
	}
	run, err := tx.Runs().WaitingForTarget(ctx, t.TenantID, t.ID)
	awaited := err == nil
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if awaited {
		rt := fleet.RunTarget{TargetID: t.ID, Version: t.Desired.Version, Done: true, Message: "no longer waited for: it has left"}
		if err := tx.Runs().SetTarget(ctx, t.TenantID, run.ID, rt); err != nil {
			return err
		}
	}
	if err := tx.Targets().Remove(ctx, t.TenantID, t.ID); err != nil {
		return err
	}
	if err := s.tell(ctx, tx, fleet.Event{
		TenantID: t.TenantID, Type: fleet.EventNormal, Reason: fleet.ReasonTargetDeleted, Agent: t.AgentName, Deployment: d.Name,
		Message: goneMessage(t) + wording.Suffix(t.Observed.Message),
	}); err != nil {
		return err
	}
	if !d.DeletedAt.IsZero() {
		return s.RemoveIfEmpty(ctx, tx, d.TenantID, d.ID)
	}
	if !awaited {
		return nil
	}
	done, err := s.NewReconciler(tx).conclude(ctx, run)
	if err != nil || !done {
		return err
	}
	return s.NextRun(ctx, tx, d.TenantID, d.ID)
}

func goneMessage(t fleet.Target) string {
	switch {
	case t.AgentID == "":
		return "the agent was deleted: its applied objects stay"
	case t.Desired.Tombstone:
		return "its objects are gone"
	default:
		return "it was detached: its objects stay"
	}
}

// RemoveIfEmpty removes a deleted deployment without targets, and completes its deletion.
func (s *Planner) RemoveIfEmpty(ctx context.Context, tx store.Tx, tenant fleet.TenantID, id fleet.DeploymentID) error {
	left, err := tx.Targets().PageOfDeployment(ctx, tenant, id, store.TargetFilter{Page: store.Page{Limit: 1}})
	if err != nil || len(left) > 0 {
		return err
	}
	if err := s.FinishOperationsOf(ctx, tx, tenant, string(id), ActionDelete, ""); err != nil {
		return err
	}
	return tx.Deployments().Remove(ctx, tenant, id)
}
