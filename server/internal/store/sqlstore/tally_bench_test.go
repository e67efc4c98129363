package sqlstore_test

import (
	"context"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// BenchmarkTally counts the targets of a page with one deployment on very many agents, and reads a page of
// failed ones, of which there are none.
func BenchmarkTally(b *testing.B) {
	const agents = 10_000
	w := newWide(b, 100)
	id := w.Crowd(b, w.store, agents)
	b.Run("count", func(b *testing.B) {
		for b.Loop() {
			w.view(b, func(ctx context.Context, tx store.Tx) error {
				out, err := tx.Targets().Tally(ctx, w.Tenant, []fleet.DeploymentID{id})
				if len(out) != 1 || out[0].Count != agents {
					b.Fatalf("got %+v", out)
				}
				return err
			})
		}
	})
	b.Run("failed", func(b *testing.B) {
		for b.Loop() {
			w.view(b, func(ctx context.Context, tx store.Tx) error {
				_, err := tx.Targets().PageOfDeployment(ctx, w.Tenant, id, store.TargetFilter{Sync: fleet.SyncFailed})
				return err
			})
		}
	})
}

func (w *wide) view(tb testing.TB, fn func(ctx context.Context, tx store.Tx) error) {
	tb.Helper()
	if err := w.store.View(tb.Context(), func(tx store.Tx) error { return fn(tb.Context(), tx) }); err != nil {
		tb.Fatal(err)
	}
}
