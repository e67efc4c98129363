package postgres_test

import (
	"testing"

	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
	"github.com/kedge-dev/kedge/server/internal/store/storetest"
)

// BenchmarkList does not control when the database analyzes its tables.
func BenchmarkList(b *testing.B) {
	storetest.BenchmarkList(b, func() store.Store { return pgtest.Open(b, pg.Database(b)) })
}
