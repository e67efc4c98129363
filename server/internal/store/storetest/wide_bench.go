package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/server/internal/store"
)

// BenchmarkList lists one page of each filter, at two sizes: the figures should be equal. It also reports the
// minimum, which is robust on a busy machine.
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
