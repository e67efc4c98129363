package sqlstore_test

import (
	"path/filepath"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
	"github.com/kedge-dev/kedge/server/internal/store/storetest"
)

// wide is a store with a [storetest.Wide].
type wide struct {
	*storetest.Wide
	store store.Store
}

func newWide(tb testing.TB, deployments int) *wide {
	tb.Helper()
	s := newStore(tb)
	return &wide{Wide: storetest.NewWide(tb, s, deployments), store: s}
}

func newStore(tb testing.TB) store.Store {
	tb.Helper()
	s, err := sqlite.Open(tb.Context(), sqlite.Config{Path: filepath.Join(tb.TempDir(), "kedge.db")})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func BenchmarkList(b *testing.B) {
	storetest.BenchmarkList(b, func() store.Store { return newStore(b) })
}
