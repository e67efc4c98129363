package sqlstore_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
	"github.com/kedge-dev/kedge/server/internal/store/storetest"
)

// wide is a store that holds a [storetest.Wide].
type wide struct {
	*storetest.Wide
	store store.Store
}

func newWide(tb testing.TB, deployments int) *wide {
	tb.Helper()
	s, err := sqlite.Open(tb.Context(), sqlite.Config{Path: filepath.Join(tb.TempDir(), "kedge.db")})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return &wide{Wide: storetest.NewWide(tb, s, deployments), store: s}
}

// BenchmarkList is one page of each filter, at two sizes: the figures should be the same. The least
// is told, too, since it is what a machine that does other things at the same time can say.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{6000, 50_000} {
		w := newWide(b, n)
		for name, f := range w.Filters() {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				rows, least := 0, time.Hour
				for b.Loop() {
					start := time.Now()
					err := w.store.View(b.Context(), func(tx store.Tx) error {
						out, err := tx.Deployments().List(b.Context(), w.Tenant, f)
						rows = len(out)
						return err
					})
					if err != nil {
						b.Fatal(err)
					}
					least = min(least, time.Since(start))
				}
				b.ReportMetric(float64(rows), "rows")
				b.ReportMetric(float64(least.Microseconds())/1000, "min-ms")
			})
		}
	}
}
