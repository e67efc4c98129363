package reposync

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// PromoteRendered puts the pending spec of d in force, if it has one, with the renders of the spec in force: a
// worker does so if the source gives the same result for both. It returns the deployment if its targets must
// still be reconciled, otherwise the zero value.
func (s *Manager) PromoteRendered(ctx context.Context, tx store.Tx, d fleet.Deployment) (fleet.Deployment, error) {
	if d.PendingSpecRevision == 0 {
		return fleet.Deployment{}, nil
	}
	p, err := tx.PendingSpecs().Get(ctx, d.TenantID, d.ID)
	if err != nil {
		return fleet.Deployment{}, err
	}
	repo, err := tx.Repositories().Get(ctx, d.TenantID, p.RepositoryID)
	if err != nil {
		return fleet.Deployment{}, err
	}
	found := &pendingOutcome{spec: p, outcome: outcome{deployment: d.With(p), commit: d.Rendered.Commit, parts: []part{{
		Unit:       Unit{Source: p.Source, Was: d.Rendered, pending: true},
		evaluation: evaluation{digest: d.Rendered.Digest, key: d.Rendered.Key},
	}}}}
	st := s.planner.NewResolvedReconciler(tx, nil)
	promoted, _, _, err := newWorker(s, repo).commitPending(ctx, tx, st, outcome{deployment: d, skipped: true, pending: found})
	return promoted, err
}
