package control_test

import (
	"os"
	"testing"

	testpostgres "github.com/kedge-dev/kedge/internal/testkit/postgres"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite/sqlitetest"
)

var (
	pgServer testpostgres.Server
	pg       = pgtest.Template{Server: &pgServer}
)

func TestMain(m *testing.M) { os.Exit(pgServer.Main(m)) }

// testDatabase is a database that a test may open more than once, if it is one that can be shared.
type testDatabase struct {
	shared bool
	open   func(t *testing.T) store.Store
}

func newSQLite(t *testing.T) *testDatabase {
	t.Helper()
	path := sqlitetest.Path(t)
	return &testDatabase{open: func(t *testing.T) store.Store {
		t.Helper()
		st, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}}
}

func newPostgres(t *testing.T) *testDatabase {
	t.Helper()
	db := pg.Database(t)
	return &testDatabase{shared: true, open: func(t *testing.T) store.Store {
		t.Helper()
		st, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}}
}

// onBoth runs a test on each kind of database.
func onBoth(t *testing.T, test func(t *testing.T, db *testDatabase)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, newSQLite(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, newPostgres(t))
	})
}
