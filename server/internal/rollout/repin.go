package rollout

import (
	"context"
	"maps"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Repin keeps a deployment at its revision when it becomes manual, and lets it follow its source when it
// becomes automated.
func (s *Planner) Repin(ctx context.Context, tx store.Tx, by string, was fleet.Deployment, d *fleet.Deployment) error {
	switch {
	case was.Policy.Manual == d.Policy.Manual:
		return nil
	case was.Policy.Manual:
		d.Pin = fleet.Pin{}
		return nil
	case was.Pin.Active():
		return nil
	}
	// While it is held, its targets may have an older revision, and keep it.
	held, err := SuspendedBy(ctx, tx, was)
	if err != nil || !held.IsZero() {
		return err
	}
	kept, err := tx.Revisions().List(ctx, d.TenantID, d.ID, store.Whole())
	if err != nil {
		return err
	}
	runs, err := bundlesOf(ctx, tx, was)
	if err != nil {
		return err
	}
	for _, r := range kept {
		if maps.Equal(r.Bundles, runs) {
			d.Pin = fleet.Pin{Revision: r.Seq, Commit: r.Commit, At: s.cfg.Now(), By: by, SourceRevision: was.SourceRevision}
			return nil
		}
	}
	return nil // without a pin, targets do not change
}

// bundlesOf returns the newest bundles of a deployment that follows its source, by variant.
func bundlesOf(ctx context.Context, tx store.Tx, d fleet.Deployment) (map[string]string, error) {
	if !d.Varies() {
		return map[string]string{"": d.Rendered.Digest}, nil
	}
	variants, err := tx.Deployments().Variants(ctx, d.TenantID, d.ID)
	out := make(map[string]string, len(variants))
	for _, v := range variants {
		if v.Rendered.Digest != "" {
			out[v.Name] = v.Rendered.Digest
		}
	}
	return out, err
}
