package placement

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Orphan detaches one target that is about to lose its agent, and stores its cluster. A target of a deleted
// deployment is removed: no agent is left to carry out its tombstone.
func (p *Placer) Orphan(ctx context.Context, tx store.Tx, a fleet.Agent, t fleet.Target, why string) error {
	d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
	if err != nil {
		return err
	}
	if d.DeletedAt.IsZero() {
		if !t.DetachedAt.IsZero() {
			return tx.Targets().SetPlace(ctx, t)
		}
		if err := p.Detach(ctx, tx, t, why, false); err != nil {
			return err
		}
		return p.ReconcileOne(ctx, tx, d, t.ID)
	}
	if err := p.planner.TargetGone(ctx, tx, t); err != nil {
		return err
	}
	return p.tell(ctx, tx, fleet.Event{
		TenantID: t.TenantID, Type: fleet.EventWarning, Reason: fleet.ReasonDeletionAbandoned, Agent: a.Name, Deployment: t.DeploymentName,
		Message: why + ": the objects were not deleted before, and stay where they are",
	})
}
