package rollout

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// KeepRevision stores a complete render of d for rollbacks.
func (s *Planner) KeepRevision(ctx context.Context, tx store.Tx, d fleet.Deployment, commit string, bundles map[string]string) (fleet.Revision, error) {
	r := fleet.Revision{Commit: commit, RenderedAt: s.cfg.Now(), Bundles: bundles}
	var err error
	if r.Seq, err = tx.Revisions().Append(ctx, d.TenantID, d.ID, r, s.keepRevisions()); err != nil {
		return fleet.Revision{}, fmt.Errorf("keeping a revision: %w", err)
	}
	return r, nil
}

// KeptBundle returns the bundle of a target at a kept revision; false if the revision has none for it.
func KeptBundle(r fleet.Revision, t fleet.Target) (fleet.Rendered, bool) {
	return choiceOfRevision(r).forTarget(t)
}
