package sqlite

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// TestStatementsDoNotDependOnTheNumberOfLabels lists by one more label each time.
//
// covers: T11
func TestStatementsDoNotDependOnTheNumberOfLabels(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "kedge.db"))
	t.Cleanup(func() { _ = s.Close() })
	list := func(labels int) {
		f := store.DeploymentFilter{Labels: map[string]string{}, Page: store.Page{Limit: 10}}
		for i := range labels {
			f.Labels[fmt.Sprintf("key-%d", i)] = "value"
		}
		for range cap(s.readers.idle) { // each connection has statements of its own
			err := s.View(t.Context(), func(tx store.Tx) error {
				if _, err := tx.Deployments().List(t.Context(), fleet.NewTenantID(), f); err != nil {
					return err
				}
				_, err := tx.Agents().List(t.Context(), fleet.NewTenantID(), store.AgentFilter{Labels: f.Labels})
				return err
			})
			if err != nil {
				t.Fatalf("listing by %d labels: %v", labels, err)
			}
		}
	}
	texts := func() []string {
		out := prepared(s.readers)
		slices.Sort(out)
		return out
	}
	list(1)
	list(2)
	want := texts()
	for labels := 3; labels <= 64; labels++ {
		list(labels)
	}
	if diff := cmp.Diff(want, texts()); diff != "" {
		t.Errorf("64 labels need other statements than 2 (-2 +64):\n%s", diff)
	}
}

// covers: T11
func TestStatementsThatAreNotUsedAreClosed(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "kedge.db"))
	t.Cleanup(func() { _ = s.Close() })
	c, err := s.readers.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.readers.release(c)
	if err := c.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask := func(n int) {
		stmt, err := c.prepare(t.Context(), fmt.Sprintf("SELECT %d", n)) //nolint:sqlclosecheck // the connection closes it
		if err != nil {
			t.Fatal(err)
		}
		var got int
		if err := stmt.QueryRowContext(t.Context()).Scan(&got); err != nil || got != n {
			t.Fatalf("got %d, %v, want %d", got, err, n)
		}
	}
	first, err := c.prepare(t.Context(), "SELECT 1") //nolint:sqlclosecheck // the connection closes it
	if err != nil {
		t.Fatal(err)
	}
	for n := 2; n <= maxStatements; n++ {
		ask(n)
	}
	ask(1)                 // in use, so the second is the oldest
	ask(maxStatements + 1) // one too many
	if got := c.stmts.recent.Len(); got != maxStatements {
		t.Errorf("got %d statements, want %d", got, maxStatements)
	}
	if c.stmts.get("SELECT 2") != nil || c.stmts.get("SELECT 1") != first {
		t.Error("only the least recently used statement should be gone")
	}
	ask(2)
}
