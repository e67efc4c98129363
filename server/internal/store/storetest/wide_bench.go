package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/server/internal/store"
)

// BenchmarkList is one page of each filter, at two sizes: the figures should be the same. The least
// is told, too, since it is what a machine that does other things at the same time can say.
func BenchmarkList(b *testing.B, open func() store.Store) {
	for _, n := range []int{6000, 50_000} {
		s := open()
		w := NewWide(b, s, n)
		for name, f := range w.Filters() {
			f.Limit = 100
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				rows, least := 0, time.Hour
				for b.Loop() {
					start := time.Now()
					err := s.View(b.Context(), func(tx store.Tx) error {
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
