package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// PutInForce does what the worker of a repository does about the pending spec of a deployment, if it has one, where
// its source gives what the spec in force gave.
func PutInForce(ctx context.Context, s *Service, d fleet.Deployment) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		d, err := tx.Deployments().Get(ctx, d.TenantID, d.ID)
		if err != nil || d.PendingSpec == 0 {
			return err
		}
		p, err := tx.PendingSpecs().Get(ctx, d.TenantID, d.ID)
		if err != nil {
			return err
		}
		repo, err := tx.Repositories().Get(ctx, d.TenantID, p.RepositoryID)
		if err != nil {
			return err
		}
		found := &pendingOutcome{spec: p, outcome: outcome{deployment: d.With(p), commit: d.Rendered.Commit, parts: []part{{
			unit:    unit{source: p.Source, was: d.Rendered, pending: true},
			verdict: verdict{digest: d.Rendered.Digest, key: d.Rendered.Key},
		}}}}
		st := s.planner.NewResolvedReconciler(tx, nil)
		promoted, _, _, err := newWorker(s.sources, repo).commitPending(ctx, tx, st, outcome{deployment: d, skipped: true, pending: found})
		if err != nil || promoted.ID == "" {
			return err
		}
		return s.planner.Reconcile(ctx, tx, promoted)
	})
}
