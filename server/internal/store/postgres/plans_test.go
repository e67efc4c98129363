package postgres_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

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
	// fewRows is what a page may read whose rows are the first of the tenant, or few: they are looked for
	// among the first twice as many as a page holds, and then found by an index.
	fewRows = 1200
	// manyRows is what a page may read whose rows are many and begin far from where it does, or which several
	// filters lead to: for each way to them as many are counted as are still few, and as many deployments are
	// looked at as are still near.
	manyRows = 7500
)

// TestListingsReadFewRows lists a page by each filter in a tenant of thousands, and counts the rows that
// the database reads for it. The planner does as it likes, both with the arguments before it and, as it does
// with a statement that was run often, without.
//
// covers: T8
func TestListingsReadFewRows(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	s := pgtest.Open(t, d)
	w := storetest.NewWide(t, s, listed)
	newBed(t, s, 10, 20) // of another tenant
	e := newExplainer(t, s, d)
	filters := w.Filters()
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		f, most := filters[name], fewRows
		f.Limit = 50
		if strings.HasSuffix(name, " late") || strings.HasPrefix(name, "all at once") {
			most = manyRows
		}
		e.check(t, name, most, func(ctx context.Context, tx store.Tx) error {
			_, err := tx.Deployments().List(ctx, w.Tenant, f)
			return err
		})
	}
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
	e.check(t, "what a page is shown with", fewRows, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.Targets().Tally(ctx, w.Tenant, page)
		return err
	})
	e.check(t, "targets of one", fewRows, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.Targets().PageOfDeployment(ctx, w.Tenant, page[0], store.TargetFilter{Health: fleet.HealthStale})
		return err
	})
	if e.rows < listed {
		t.Errorf("only %d rows were read in all: is anything counted?", e.rows)
	}
}

// explainer runs the statements of a transaction again, and asks for each what it read.
type explainer struct {
	store *postgres.Store
	heard *recorder
	conn  *pgx.Conn
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
	admin, err := pgx.Connect(t.Context(), d.Admin)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(t.Context()) }()
	if _, err := admin.Exec(t.Context(), "VACUUM ANALYZE"); err != nil { // as it is done by itself soon after
		t.Fatal(err)
	}
	heard := &recorder{}
	traced, stop, err := s.Traced(t.Context(), heard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return &explainer{store: traced, heard: heard, conn: conn}
}

// check runs fn and fails the test if what it asks for reads more rows than that.
func (e *explainer) check(t *testing.T, name string, most int, fn func(ctx context.Context, tx store.Tx) error) {
	t.Helper()
	e.heard.statements = nil
	if err := e.store.View(t.Context(), func(tx store.Tx) error { return fn(t.Context(), tx) }); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
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
