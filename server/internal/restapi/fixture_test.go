package restapi_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/seal"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite/sqlitetest"
)

const (
	token      = "kedge-api-right"
	otherToken = "kedge-api-other"
	agentToken = "kedge-agent-right/with a slash"
)

var (
	born  = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	later = born.Add(time.Minute)
)

// admin is the caller of token.
var admin = auth.Principal{Name: "admin", TokenID: "tok-admin", FleetAdmin: true}

// fixture is the real control over a database in which everything exists once; see seed. Its clock stands at
// later, and nothing runs in the background.
type fixture struct {
	*control.Service
	store store.Store
}

func newFixture(t testing.TB) fixture {
	t.Helper()
	return newFixtureOn(t, memGit{})
}

// newFixtureOn returns a fixture with another Git.
func newFixtureOn(t testing.TB, git control.Git) fixture {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kedge.db")
	if err := os.WriteFile(path, seedOnce(t), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openFixture(t.Context(), path, git)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.store.Close() })
	if err := f.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// sealer encrypts the secrets of the credentials of all fixtures.
var sealer = sync.OnceValues(func() (*seal.Ring, error) {
	key, err := seal.NewKey("test")
	if err != nil {
		return nil, err
	}
	return seal.Parse([]byte(key))
})

func openFixture(ctx context.Context, path string, git control.Git) (fixture, error) {
	keys, err := sealer()
	if err != nil {
		return fixture{}, err
	}
	st, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return fixture{}, err
	}
	c, err := control.New(control.Config{
		Key: []byte(strings.Repeat("k", 32)), Sealer: keys, Version: "v1.2.3", Now: func() time.Time { return later },
	}, st, git)
	if err == nil {
		_, err = c.Bootstrap(ctx, false)
	}
	return fixture{c, st}, err
}

// seeded is the file of a seeded database. It is created once, because that would take most of the time of these
// tests.
var seeded struct {
	once sync.Once
	data []byte
}

func seedOnce(t testing.TB) []byte {
	t.Helper()
	seeded.once.Do(func() {
		path := sqlitetest.Path(t)
		st, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if err == nil {
			err = errors.Join(st.Update(t.Context(), func(tx store.Tx) error { return seed(t.Context(), tx) }), st.Close())
		}
		if err == nil {
			seeded.data, err = os.ReadFile(path)
		}
		if err != nil {
			t.Fatalf("seeding a database: %v", err)
		}
	})
	return seeded.data
}

// connect opens a connection of the agent prod.
func (f fixture) connect(ctx context.Context) error {
	here := fleet.Connection{
		SessionID: "ses-1", AgentID: "agt-1", TenantID: "ten-1", Replica: "pod-b", Version: "v1.0.0", KubeVersion: "v1.36.3",
		RemoteAddr: "10.0.0.2:1", ConnectedAt: born, LastSeenAt: later,
	}
	return f.AgentConnected(ctx, here)
}

// work runs the background work until the end of the test.
func (f fixture) work(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- f.Work(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Work: %v", err)
		}
	})
}

// view reads the database.
func (f fixture) view(t *testing.T, fn func(tx store.Tx) error) {
	t.Helper()
	if err := f.store.View(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

// target reads a target of the tenant default, and its objects.
func (f fixture) target(t *testing.T, id fleet.TargetID) (got fleet.Target, objects []fleet.ObjectStatus) {
	t.Helper()
	f.view(t, func(tx store.Tx) (err error) {
		if got, err = tx.Targets().Get(t.Context(), "ten-1", id); err == nil {
			objects, err = tx.Targets().Objects(t.Context(), "ten-1", id)
		}
		return err
	})
	return got, objects
}

// lastChange returns the number of the newest change: if it is equal before and after, nothing was written.
func (f fixture) lastChange(t *testing.T) int64 {
	t.Helper()
	var last int64
	f.view(t, func(tx store.Tx) (err error) {
		last, err = tx.Changes().Last(t.Context())
		return err
	})
	return last
}

// repoSecret is the webhook secret of the repository rep-1, which the server derives from its key.
const repoSecret = "096d99e71e19179f20ca100a48bf8fa4a5d41d87115a9e67f8573fc1945f2fe2"
