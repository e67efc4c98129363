package rollout

import (
	"context"
	"errors"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// DelayForSpec records on a sync run that it waits for the pending spec of its deployment.
func (st *Reconciler) DelayForSpec(ctx context.Context, d fleet.Deployment, run fleet.SyncRun) error {
	p, err := st.tx.PendingSpecs().Get(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	return st.DelayRun(ctx, run, fleet.Cause{Reason: fleet.ReasonSpecPending, Message: p.String()})
}

// retryPending lets a refused spec be evaluated again: the obstacle may be gone.
func (st *Reconciler) retryPending(ctx context.Context, d fleet.Deployment) error {
	if d.PendingSpecRevision == 0 || st.resolved {
		return nil
	}
	p, err := st.tx.PendingSpecs().Get(ctx, d.TenantID, d.ID)
	if errors.Is(err, store.ErrNotFound) || err == nil && p.Reason != fleet.ReasonSpecRefused {
		return nil
	}
	if err != nil {
		return err
	}
	return st.tx.Changes().WakeRepository(ctx, p.TenantID, p.RepositoryID, store.Wake{Reason: store.WakePendingSpec})
}
