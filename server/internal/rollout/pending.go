package rollout

import (
	"context"
	"errors"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// DelayForSpec says on a sync run that it waits for the pending spec of its deployment, which it is of.
func (st *Reconciler) DelayForSpec(ctx context.Context, d fleet.Deployment, run fleet.SyncRun) error {
	p, err := st.tx.PendingSpecs().Get(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	return st.DelayRun(ctx, run, p.String())
}

// retryPending has a spec looked at again that was refused: what forbade it may be gone.
func (st *Reconciler) retryPending(ctx context.Context, d fleet.Deployment) error {
	if d.PendingSpec == 0 || st.resolved {
		return nil
	}
	p, err := st.tx.PendingSpecs().Get(ctx, d.TenantID, d.ID)
	if errors.Is(err, store.ErrNotFound) || err == nil && p.Reason != fleet.PendingRefused {
		return nil
	}
	if err != nil {
		return err
	}
	return st.tx.Changes().RecordPush(ctx, p.TenantID, p.RepositoryID, "")
}
