package postgres_test

import (
	"context"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit"
	testpostgres "github.com/kedge-dev/kedge/internal/testkit/postgres"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
)

// covers: O7 (a fail-over that breaks no connection)
func TestConnectionsToANodeThatTakesNoWritesAreLeft(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	s := pgtest.Open(t, d)
	tenant, _ := newTenant(t, s, "a")
	mustTake(t, s, "x")
	conn := admin(t, d)
	// A node that is demoted without a restart answers so on every connection that is open.
	for _, query := range []string{
		`CREATE TABLE demoted (pid int)`, `GRANT SELECT ON demoted TO public`,
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF EXISTS (SELECT FROM demoted WHERE pid = pg_backend_pid()) THEN
				RAISE EXCEPTION 'cannot execute INSERT in a read-only transaction' USING ERRCODE = '25006';
			END IF;
			RETURN NULL;
		END $$`,
		`CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse()`,
		`INSERT INTO demoted SELECT pid FROM pg_stat_activity WHERE datname = current_database()`,
	} {
		if _, err := conn.Exec(t.Context(), query); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	for range 3 {
		err := s.Update(t.Context(), func(tx store.Tx) error { return tx.Events().Append(t.Context(), event(tenant, "x")) })
		if err != nil {
			t.Fatalf("writing after the node was demoted: %v", err)
		}
	}
}

// covers: O7 (several hosts: writes go to the one that takes them, before and after a fail-over)
func TestOfSeveralHostsTheWritableOneIsUsed(t *testing.T) {
	t.Parallel()
	own := &testpostgres.Server{}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	d := (&pgtest.Template{Server: own}).Database(t)
	standby := own.Standby(t)
	d.URL = standby.Before(t, d.URL)
	s, err := postgres.Open(t.Context(), postgres.Config{URL: d.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	newTenant(t, s, "a")
	mustTake(t, s, "x")

	if err := own.Stop(); err != nil {
		t.Fatal(err)
	}
	standby.Promote(t)
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		return s.Update(ctx, func(tx store.Tx) error {
			_, err := tx.Tenants().List(ctx, store.Page{})
			if err != nil {
				return err
			}
			return tx.Changes().Trim(ctx, 1000)
		})
	})
	testkit.Eventually(t, patience, func(context.Context) error {
		_, _, err := s.Lock(t.Context(), "x")
		return err
	})
}
