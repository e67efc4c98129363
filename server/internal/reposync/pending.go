package reposync

import (
	"context"
	"errors"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Waiting for pending specs, and waking them.

// delayPending records on the pending specs of a repository why it cannot be read. They are evaluated when it
// can.
func (w *worker) delayPending(ctx context.Context, todo work, problem error) error {
	var failed error
	for _, p := range todo.pending {
		if p.Reason == fleet.ReasonSourceUnreadable && p.Problem == problem.Error() {
			continue
		}
		failed = errors.Join(failed, w.svc.store.Update(ctx, func(tx store.Tx) error {
			d, err := tx.Deployments().Get(ctx, p.TenantID, p.DeploymentID)
			if errors.Is(err, store.ErrNotFound) || err == nil && d.PendingSpecRevision != p.SpecRevision {
				return nil // edited, withdrawn or in force by now
			}
			if err != nil {
				return err
			}
			p := p // this may run more than once
			p.Reason, p.Problem = fleet.ReasonSourceUnreadable, problem.Error()
			st := w.svc.planner.NewReconciler(tx)
			return w.pendingProblem(ctx, tx, st, d, p)
		}))
	}
	return failed
}

// claimPending claims the deployments whose pending specs are requested, like claimAll, and adds them to asked.
func (w *worker) claimPending(r *pass, todo work, refs map[string]gitsource.Ref, asked map[fleet.DeploymentID]bool) map[fleet.DeploymentID]bool {
	why := todo.due
	why.check = true
	out := map[fleet.DeploymentID]bool{}
	for _, p := range todo.pending {
		_, resolved := refs[p.Source.Revision]
		switch {
		case w.elsewhere(r, p.DeploymentID, why):
			r.skipped = true
		case resolved && todo.asksFor(p):
			w.claim(r, p.DeploymentID, why)
			asked[p.DeploymentID], out[p.DeploymentID] = true, true
		}
	}
	return out
}

// elsewhereInForce reads those of the deployments whose specs in force use other repositories.
func (w *worker) elsewhereInForce(ctx context.Context, tx store.Tx, pending map[fleet.DeploymentID]bool) ([]fleet.Deployment, error) {
	var out []fleet.Deployment
	for id := range pending {
		d, err := tx.Deployments().Get(ctx, w.tenant, id)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if d.RepositoryID != w.id && d.DeletedAt.IsZero() {
			out = append(out, d)
		}
	}
	return out, nil
}

// concernPending wakes the worker of the repository of a pending spec: it was edited since its last evaluation,
// or a run waits for it.
func (s *Manager) concernPending(ctx context.Context, tx store.Tx, c store.Change, d fleet.Deployment, due *wakes) error {
	p, err := tx.PendingSpecs().Get(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	if c.Kind == store.ChangeRun {
		open, err := tx.Runs().Open(ctx, d.TenantID, d.ID)
		if err != nil || !slices.ContainsFunc(open, rollout.NeedsGit) {
			return err
		}
	} else if s.knows(p.RepositoryID, d) {
		return nil
	}
	repo, err := tx.Repositories().Get(ctx, c.TenantID, p.RepositoryID)
	if err != nil {
		return err
	}
	due.add(repo, wakeup{check: true})
	return nil
}
