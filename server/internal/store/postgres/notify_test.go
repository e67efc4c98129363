package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
)

func heard(t *testing.T, what string, wake <-chan struct{}) {
	t.Helper()
	select {
	case <-wake:
	case <-time.After(patience):
		t.Fatalf("%s: no notification was received", what)
	}
}

// terminate ends the connections of a database whose last statement matches, and waits until they are gone.
func terminate(t *testing.T, conn *pgx.Conn, like string) {
	t.Helper()
	const those = ` FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE $1`
	pids := one[[]int32](t, conn, `SELECT COALESCE(array_agg(pid), '{}')`+those, like)
	if len(pids) == 0 {
		t.Fatalf("no connection has run %q", like)
	}
	for _, pid := range pids {
		one[bool](t, conn, `SELECT pg_terminate_backend($1, 10000)`, pid)
	}
}

const listening = "LISTEN %"

func TestOtherProcessesAreHeard(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	speaker, hearer := pgtest.Open(t, d), pgtest.Open(t, d)
	tenant, _ := newTenant(t, speaker, "a")
	wake := hearer.Notify(t.Context())
	update(t, speaker, func(ctx context.Context, tx store.Tx) error { return tx.Events().Append(ctx, event(tenant, "x")) })
	heard(t, "a commit of another process", wake)
}

// TestALostListenerMissesNothing ends the connection that listens, and commits while it is gone.
func TestALostListenerMissesNothing(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	speaker, hearer, conn := pgtest.Open(t, d), pgtest.Open(t, d), admin(t, d)
	tenant, _ := newTenant(t, speaker, "a")
	say := func() {
		t.Helper()
		update(t, speaker, func(ctx context.Context, tx store.Tx) error { return tx.Events().Append(ctx, event(tenant, "x")) })
	}
	say()
	wake := hearer.Notify(t.Context())
	heardAll := lastSeq(t, hearer)
	allow := gatekeeper(t, conn)
	allow(false) // so that the listener stays disconnected until the commit is done
	terminate(t, conn, listening)
	say()
	allow(true)
	heard(t, "a commit while nobody listened", wake)
	if got := lastSeq(t, hearer); got != heardAll+1 {
		t.Errorf("after the notification: got last number %d, want %d", got, heardAll+1)
	}
	say()
	heard(t, "a commit on the new connection", wake)
}

// gatekeeper returns a function that allows or forbids connections to the database of conn.
func gatekeeper(t *testing.T, conn *pgx.Conn) func(yes bool) {
	t.Helper()
	elsewhere := admin(t, pg.Database(t))
	return func(yes bool) {
		t.Helper()
		query := fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS %t", conn.Config().Database, yes)
		if _, err := elsewhere.Exec(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
}
