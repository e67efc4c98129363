package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
	"github.com/kedge-dev/kedge/server/internal/store/storetest"
)

const (
	// listed is how many deployments there are; they have half as many targets again.
	listed = 6000
	// fewRows is what a page may read if its rows are among the first of the tenant, or few: they are searched
	// among twice as many rows as a page has, and then found with an index.
	fewRows = 1200
	// manyRows is what a page may read if its rows are many and start far from the first, or if several filters
	// apply: each filter counts as many rows as are still few, and visits as many deployments as are still
	// near.
	manyRows = 7500
)

// TestListingsReadFewRows lists a page with each filter in a tenant of thousands, and counts the rows that the
// database reads. It runs with custom and with generic plans, and with and without statistics of the small
// tables: PostgreSQL does not analyze a table before 50 rows have changed.
//
// covers: T8
func TestListingsReadFewRows(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	s := pgtest.Open(t, d)
	w := storetest.NewWide(t, s, listed)
	newBed(t, s, 10, 20) // of another tenant
	e := newExplainer(t, s, d)
	e.vacuum(t, grown)
	checkListings(t, e, w, "small tables unknown")
	e.vacuum(t, "")
	checkListings(t, e, w, "all tables known")
	if e.rows < listed {
		t.Errorf("only %d rows were read in all: is anything counted?", e.rows)
	}
}

// TestChoresReadFewRows runs the trims of housekeeping, and counts the rows that the database reads.
func TestChoresReadFewRows(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	s := pgtest.Open(t, d)
	w := storetest.NewWide(t, s, 30)
	const events, kept = 3000, 1000
	for _, tenant := range []fleet.TenantID{w.Tenant, newBed(t, s, 1, 1).tenant} {
		err := s.Update(t.Context(), func(tx store.Tx) error {
			for range events {
				e := fleet.Event{TenantID: tenant, At: storetest.WideTime, Type: fleet.EventNormal, Reason: "Test"}
				if err := tx.Events().Append(t.Context(), e); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	e := newExplainer(t, s, d)
	e.vacuum(t, grown+", events")
	e.checkChore(t, "events", events+kept/2, func(ctx context.Context, tx store.Tx) error { return tx.Events().Trim(ctx, w.Tenant, kept) })
	e.checkChore(t, "changes", 4*events, func(ctx context.Context, tx store.Tx) error { return tx.Changes().Trim(ctx, kept) })
	if e.rows < events {
		t.Errorf("only %d rows were read in all: is anything counted?", e.rows)
	}
}

func checkListings(t *testing.T, e *explainer, w *storetest.Wide, known string) {
	t.Helper()
	filters := w.Filters()
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		f, most := filters[name], fewRows
		f.Limit = 50
		if strings.HasSuffix(name, " late") || strings.HasPrefix(name, "all at once") {
			most = manyRows
		}
		e.check(t, known+", "+name, most, func(ctx context.Context, tx store.Tx) error {
			_, err := tx.Deployments().List(ctx, w.Tenant, f)
			return err
		})
	}
	page := firstPage(t, e.store, w)
	e.check(t, known+", what a page is shown with", fewRows, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.Targets().Tally(ctx, w.Tenant, page)
		return err
	})
	e.check(t, known+", targets of one", fewRows, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.Targets().PageOfDeployment(ctx, w.Tenant, page[0], store.TargetFilter{Health: fleet.HealthStale})
		return err
	})
}

func firstPage(t *testing.T, s store.Store, w *storetest.Wide) []fleet.DeploymentID {
	t.Helper()
	var page []fleet.DeploymentID
	err := s.View(t.Context(), func(tx store.Tx) error {
		first, err := tx.Deployments().List(t.Context(), w.Tenant, store.DeploymentFilter{Page: store.Page{Limit: 50}})
		for _, d := range first {
			page = append(page, d.ID)
		}
		return err
	})
	if err != nil || len(page) != 50 {
		t.Fatalf("reading a page: got %d deployments, %v", len(page), err)
	}
	return page
}

// TestConnectionsAreTuned checks the planner settings of a connection of the store.
func TestConnectionsAreTuned(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t, pg.Database(t))
	err := s.Within(t.Context(), false, func(r postgres.Raw) error {
		got, err := r.Everywhere(t.Context(), `SELECT current_setting('jit') || ' ' || current_setting('random_page_cost')`)
		if want := []string{"off 1.1"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// explainer runs the statements of a transaction again and returns what each reads.
type explainer struct {
	store *postgres.Store
	heard *recorder
	conn  *pgx.Conn
	admin string
	rows  int // of all that was checked
}

func newExplainer(t *testing.T, s *postgres.Store, d pgtest.Database) *explainer {
	t.Helper()
	// Of the role of the server: row-level security is part of every plan.
	conn, err := pgx.Connect(t.Context(), d.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	if _, err := conn.Exec(t.Context(), postgres.Tune); err != nil {
		t.Fatal(err)
	}
	heard := &recorder{}
	traced, stop, err := s.Traced(t.Context(), heard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return &explainer{store: traced, heard: heard, conn: conn, admin: d.Admin}
}

const (
	// grown are the tables that have thousands of rows in a [storetest.Wide].
	grown = "deployments, deployment_labels, deployment_words, targets"
	// seenByAll is how long it may take until every row is all-visible.
	seenByAll = time.Minute
)

// vacuum does what autovacuum does soon after tables have grown; without any tables, for all. It continues
// until index-only scans are possible: while the database analyzes another table, rows are not all-visible.
func (e *explainer) vacuum(t *testing.T, tables string) {
	t.Helper()
	admin, err := pgx.Connect(t.Context(), e.admin)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(t.Context()) }()
	deadline := time.Now().Add(seenByAll)
	for left := []string{""}; len(left) > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("rows of %q are not seen by all after %s", left, seenByAll)
		}
		if _, err := admin.Exec(t.Context(), "VACUUM ANALYZE "+tables); err != nil {
			t.Fatal(err)
		}
		err := admin.QueryRow(t.Context(), `SELECT COALESCE(array_agg(relname::text), '{}') FROM pg_class
			WHERE relkind = 'r' AND relname = ANY (string_to_array($1, ', ')) AND relallvisible < relpages`,
			cmp.Or(tables, grown)).Scan(&left)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// check runs fn and fails the test if its statements read more rows.
func (e *explainer) check(t *testing.T, name string, most int, fn func(ctx context.Context, tx store.Tx) error) {
	t.Helper()
	e.heard.statements = nil
	if err := e.store.View(t.Context(), func(tx store.Tx) error { return fn(t.Context(), tx) }); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	e.compare(t, name, most)
}

// checkChore is check for fn that deletes: its changes are rolled back, here and when they are explained.
func (e *explainer) checkChore(t *testing.T, name string, most int, fn func(ctx context.Context, tx store.Tx) error) {
	t.Helper()
	e.heard.statements = nil
	undone := errors.New("undone")
	err := e.store.Update(t.Context(), func(tx store.Tx) error { return cmp.Or(fn(t.Context(), tx), undone) })
	if !errors.Is(err, undone) {
		t.Fatalf("%s: %v", name, err)
	}
	e.compare(t, name, most)
}

// compare fails the test if the recorded statements read more rows.
func (e *explainer) compare(t *testing.T, name string, most int) {
	t.Helper()
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		rows, plans, err := e.explain(t.Context(), mode)
		if err != nil {
			t.Fatalf("explaining %s: %v", name, err)
		}
		e.rows += rows
		if rows > most {
			t.Errorf("%s (%s): got %d rows read, want at most %d:\n%s", name, mode, rows, most, strings.Join(plans, "\n"))
		}
	}
}
