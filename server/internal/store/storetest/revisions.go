package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// covers: A16
var revisionTests = map[string]func(*testing.T, store.Store){
	"are numbered and kept, the pinned one always": revisionsAreKept,
	"with equal bundles are one":                   revisionsAreNotRepeated,
	"leave with their deployment":                  revisionsLeave,
}

func appendRevision(t *testing.T, s store.Store, w *world, r fleet.Revision, keep int) (seq int64) {
	t.Helper()
	update(t, s, func(ctx context.Context, tx store.Tx) (err error) {
		seq, err = tx.Revisions().Append(ctx, w.tenant.ID, w.deployment.ID, r, keep)
		return err
	})
	return seq
}

func listRevisions(t *testing.T, s store.Store, w *world) []fleet.Revision {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Revision, error) {
		return tx.Revisions().List(ctx, w.tenant.ID, w.deployment.ID, store.Page{})
	})
}

// newRevisions makes the bundles of n revisions.
func newRevisions(t *testing.T, s store.Store, w *world, n int) []fleet.Revision {
	t.Helper()
	out := make([]fleet.Revision, n)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		for i := range out {
			b := newBundle(w.tenant.ID, fmt.Sprint("revision ", i))
			out[i] = fleet.Revision{Commit: fmt.Sprint("commit-", i), RenderedAt: at(20 + i),
				Bundles: map[string]string{"v1": b.Digest, "v2": w.bundle.Digest}}
			if err := tx.Bundles().Put(ctx, b); err != nil {
				return err
			}
		}
		return nil
	})
	return out
}

func revisionsAreKept(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a") // pinned to revision 1
	all := newRevisions(t, s, w, 6)
	for i := range all {
		all[i].Seq = appendRevision(t, s, w, all[i], 3)
		same(t, "number", all[i].Seq, int64(i+2))
	}
	same(t, "the newest three and the pinned one", listRevisions(t, s, w), []fleet.Revision{all[5], all[4], all[3], w.revision})
	same(t, "one of them", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Revision, error) {
		return tx.Revisions().Get(ctx, w.tenant.ID, w.deployment.ID, 6)
	}), all[4])
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Revision, error) {
		return tx.Revisions().Get(ctx, w.tenant.ID, w.deployment.ID, 2)
	})
	released := w.deployment
	released.Pin = fleet.Pin{}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Deployments().Update(ctx, released) })
	same(t, "number", appendRevision(t, s, w, all[0], 0), 8)
	left := listRevisions(t, s, w)
	if len(left) != 1 || left[0].Seq != 8 {
		t.Errorf("when none is to be kept: got %v, want the newest", left)
	}
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.Revisions().Append(ctx, w.tenant.ID, w.deployment.ID, fleet.Revision{Bundles: map[string]string{"": "sha256:unknown"}}, 3)
		return err
	})
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.Revisions().Append(ctx, w.tenant.ID, fleet.NewDeploymentID(), fleet.Revision{}, 3)
		return err
	})
}

func revisionsAreNotRepeated(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	again := w.revision
	again.Commit, again.RenderedAt = "later", at(30)
	same(t, "number", appendRevision(t, s, w, again, 3), 1)
	same(t, "list", listRevisions(t, s, w), []fleet.Revision{again})
	other := newRevisions(t, s, w, 1)[0]
	other.Seq = appendRevision(t, s, w, other, 3)
	// Going back to the state before the newest is a new revision.
	back := again
	back.Seq = appendRevision(t, s, w, again, 3)
	same(t, "list", listRevisions(t, s, w), []fleet.Revision{back, other, again})
	renamed := back
	renamed.Bundles = map[string]string{"v1": w.bundle.Digest}
	renamed.Seq = appendRevision(t, s, w, renamed, 10)
	same(t, "the same bundle for another variant", renamed.Seq, int64(4))
}

func revisionsLeave(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.Targets().Remove(ctx, w.tenant.ID, w.target.ID); err != nil {
			return err
		}
		return tx.Deployments().Remove(ctx, w.tenant.ID, w.deployment.ID)
	})
	after := dump(t, s, w)
	for _, name := range []string{"revisions", "variants", "runs", "run targets", "found deployments"} {
		if got := fmt.Sprint(after[name]); got != "[]" {
			t.Errorf("%s of a removed deployment: got %s, want none", name, got)
		}
	}
}
