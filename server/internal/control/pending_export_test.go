package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// PutInForce does the work of the worker for the pending spec of a deployment, if it has one, whose source
// gives the same result as the spec in force.
func PutInForce(ctx context.Context, s *Service, d fleet.Deployment) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		d, err := tx.Deployments().Get(ctx, d.TenantID, d.ID)
		if err != nil {
			return err
		}
		promoted, err := s.sources.PromoteRendered(ctx, tx, d)
		if err != nil || promoted.ID == "" {
			return err
		}
		return s.planner.Reconcile(ctx, tx, promoted)
	})
}
