package restapi_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	testpostgres "github.com/kedge-dev/kedge/internal/testkit/postgres"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite/sqlitetest"
	"github.com/kedge-dev/kedge/server/internal/store/storetest"
)

var (
	pgServer testpostgres.Server
	pg       = pgtest.Template{Server: &pgServer}
)

func TestMain(m *testing.M) { os.Exit(pgServer.Main(m)) }

// BenchmarkListDeployments is B9 at a size that takes half an hour to create with requests: one page of each
// filter over HTTP, of 6,000 and of 50,000 deployments that were inserted into the database. The target is
// about the median.
func BenchmarkListDeployments(b *testing.B) {
	databases := map[string]func(b *testing.B) store.Store{
		"sqlite": func(b *testing.B) store.Store {
			s, err := sqlite.Open(b.Context(), sqlite.Config{Path: sqlitetest.Path(b)})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.Close() })
			return s
		},
		"postgres": func(b *testing.B) store.Store { return pg.Open(b) },
	}
	for _, kind := range slices.Sorted(maps.Keys(databases)) {
		for _, n := range []int{6000, 50_000} {
			s := databases[kind](b)
			url, token := listServer(b, s)
			storetest.NewWide(b, s, n)
			for _, query := range wideQueries() {
				b.Run(fmt.Sprintf("%s/%d/%s", kind, n, query), func(b *testing.B) {
					benchPage(b, url+"/api/v1/tenants/wide/deployments?limit=100&"+query, token)
				})
			}
		}
	}
}

// wideQueries are the queries of the benchmark with requests, as far as a [storetest.Wide] has matching data.
func wideQueries() []string {
	return []string{
		"", "after=team-400-app-99999", "q=app-01234", "q=needle", "q=nobody-has-this", "environment=default", "environment=rare",
		"agent=agent-0000", "sync=Synced", "sync=Failed", "sync=Pending", "health=Current", "health=Stale", "health=Failed",
		"label=tier%3Dweb", "label=rare%3Dyes", "repository=https%3A%2F%2Fgit.example.com%2Fteams%2Fteam-003.git",
		"environment=default&agent=agent-0000&sync=Synced&health=Current&label=tier%3Dweb&q=app",
	}
}

func listServer(b *testing.B, s store.Store) (url, token string) {
	b.Helper()
	git, err := gitsource.New(gitsource.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = git.Close() })
	c, err := control.New(control.Config{Key: []byte(strings.Repeat("k", 32))}, s, git)
	if err != nil {
		b.Fatal(err)
	}
	token, err = c.Bootstrap(b.Context(), false)
	if err != nil {
		b.Fatal(err)
	}
	cfg := config()
	cfg.PerAddress = restapi.Rate{PerSecond: 1e6, Burst: 1e6}
	server := httptest.NewServer(restapi.New(cfg, c))
	b.Cleanup(server.Close)
	return server.URL, token
}

// benchPage reads one page repeatedly.
func benchPage(b *testing.B, url, token string) {
	b.Helper()
	var took []time.Duration
	size := int64(0)
	for b.Loop() {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		began := time.Now()
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		size, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			b.Fatalf("%s: %d, %v", url, answer.StatusCode, err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(size), "B")
}
