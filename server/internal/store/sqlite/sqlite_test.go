package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/storetest"
)

// open opens a database and closes it at the end of the test.
func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return s
}

// TestConformance runs the suite, and then checks the plan of every query: only queries about a whole table may
// read one.
func TestConformance(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	queries := map[string]bool{}
	empty := emptyDatabase(t)
	t.Run("suite", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) store.Store {
			t.Helper()
			path := filepath.Join(t.TempDir(), "kedge.db")
			if err := os.WriteFile(path, empty, 0o600); err != nil {
				t.Fatal(err)
			}
			s := open(t, path)
			t.Cleanup(func() {
				mu.Lock()
				defer mu.Unlock()
				for _, query := range append(prepared(s.writer), prepared(s.readers)...) {
					queries[query] = true
				}
			})
			return s
		})
	})
	if len(queries) < 60 {
		t.Fatalf("the suite made %d queries; the contract has more methods than that", len(queries))
	}
	s := open(t, filepath.Join(t.TempDir(), "plans.db"))
	used := map[string]bool{}
	for query := range queries {
		checkPlan(t, s, query, used)
	}
	for prefix := range scansAllowed {
		if !used[prefix] {
			t.Errorf("no plan has %q any more: it need not be allowed", prefix)
		}
	}
}

// emptyDatabase returns the file of a database that was just migrated: under the race detector a
// copy is much faster than a migration per test.
func emptyDatabase(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "empty.db")
	if err := open(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// prepared returns the texts of the statements of all connections; a closed pool has none.
func prepared(p *pool) []string {
	var out []string
	for range len(p.idle) {
		c := <-p.idle
		if c.stmts.recent != nil {
			out = append(out, c.stmts.recent.Keys()...)
		}
		p.idle <- c
	}
	return out
}

// scansAllowed are steps of plans that read all of something on purpose.
var scansAllowed = map[string]string{
	"SCAN json_each VIRTUAL TABLE INDEX 1:": "the list of requested ids",
	"SCAN p VIRTUAL TABLE INDEX 1:":         "the requested labels",
	"SCAN newest":                           "a page that a limit has bounded",
	"SCAN words":                            "the targets of the deployments on a page",
	"SCAN gathered":                         "deployments of a source that was counted and is small",
	"SCAN counted":                          "rows that a limit has bounded",
	"SCAN 8-ROW VALUES CLAUSE":              "the rows of an insert",
	"SCAN x USING COVERING INDEX sqlite_autoindex_tenants_1": "the owners of agents that a tenant has targets on: one lookup for each tenant",
	"SCAN server_replicas":                                  "all servers, which are few",
	"SCAN c USING INDEX connections_open":                   "the open connections, by their own index, for servers that are gone",
	"SCAN engine_upgrades USING INDEX engine_upgrades_open": "the open upgrades, by their own index",
	"SCAN r USING INDEX":                                    "ListAllTenants of repositories, and the open runs by their own index",
	"SCAN r":                                                "ListAllTenants of repositories",
	"SCAN changes":                                          "a page of the outbox in the order of its key, bounded by a limit",
	"SCAN done":                                             "Trim of runs goes over those of a tenant",
	"SCAN (subquery":                                        "Trim of runs numbers those of a tenant",
	"SCAN credentials USING INDEX credentials_by_key": "those on both sides of a key, bounded by a limit",
}

func checkPlan(t *testing.T, s *Store, query string, used map[string]bool) {
	t.Helper()
	switch query {
	case "BEGIN", "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK":
		return
	}
	for _, step := range plan(t, s, query) {
		if !strings.HasPrefix(step, "SCAN") {
			continue
		}
		allowed := false
		for prefix := range scansAllowed {
			if strings.HasPrefix(step, prefix) {
				allowed, used[prefix] = true, true
			}
		}
		if !allowed {
			t.Errorf("%s: the plan has %q", query, step)
		}
	}
}

// TestListingsReadNoWholeTable lists by each filter alone and by all together.
//
// covers: T8
func TestListingsReadNoWholeTable(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "kedge.db"))
	storetest.Listings(t, s)
	queries := prepared(s.readers)
	if len(queries) < 40 {
		t.Errorf("only %d queries were checked", len(queries))
	}
	for _, query := range queries {
		checkPlan(t, s, query, map[string]bool{})
		for _, step := range plan(t, s, query) {
			if strings.HasSuffix(step, "(tenant_id=?)") && !strings.Contains(step, "deployments_in_error") { // has those only
				t.Errorf("%s: %q reads all that the tenant has", query, step)
			}
		}
	}
}

// TestEventsAreFoundByTheirIndex is stricter: any of the indexes avoids a scan of the table, but the wrong one
// reads all events of the tenant.
func TestEventsAreFoundByTheirIndex(t *testing.T) {
	t.Parallel()
	cases := []struct {
		filter store.EventFilter
		want   string
	}{
		{store.EventFilter{}, "events_by_tenant (tenant_id=?)"},
		{store.EventFilter{AfterSeq: 7}, "events_by_tenant (tenant_id=? AND seq>?)"},
		{store.EventFilter{Agent: "a", BeforeSeq: 7}, "events_by_agent (tenant_id=? AND agent=? AND seq<?)"},
		{store.EventFilter{Deployment: "d", AfterSeq: 7}, "events_by_deployment (tenant_id=? AND deployment=? AND seq>?)"},
	}
	for _, c := range cases {
		s := open(t, filepath.Join(t.TempDir(), "kedge.db"))
		err := s.View(t.Context(), func(tx store.Tx) error {
			_, err := tx.Events().List(t.Context(), "t", c.filter)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, query := range prepared(s.readers) {
			if strings.HasPrefix(query, "SELECT") {
				got = append(got, plan(t, s, query)...)
			}
		}
		if got := strings.Join(got, "\n"); !strings.Contains(got, c.want) {
			t.Errorf("plan of events by %+v: got\n%s\nwant a search by %s", c.filter, got, c.want)
		}
	}
}

// plan returns the steps in which SQLite would run a query.
func plan(t *testing.T, s *Store, query string) []string {
	t.Helper()
	rows, err := s.readerDB.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, make([]any, 60)...)
	if err != nil {
		t.Fatalf("explaining %s: %v", query, err)
	}
	defer rows.Close()
	var steps []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps
}
