package control

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite/sqlitetest"
)

// scripted is a Git whose remotes are controlled by a test.
type scripted struct {
	fetch  func(ctx context.Context, a gitsource.Access) error // before it answers
	forget func(keep func(owner, url string) bool)
}

func (*scripted) CheckURL(url string) (string, error) { return url, nil }

func (g *scripted) Fetch(ctx context.Context, a gitsource.Access, revisions []string) (map[string]gitsource.Ref, error) {
	if g.fetch != nil {
		if err := g.fetch(ctx, a); err != nil {
			return nil, err
		}
	}
	out := map[string]gitsource.Ref{}
	for _, revision := range revisions {
		out[revision] = gitsource.Ref{Commit: strings.Repeat("c", 40)}
	}
	return out, nil
}

func (*scripted) Tree(context.Context, gitsource.Access, string) (filetree.Tree, error) {
	return memtree.New(map[string]string{"cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"}), nil
}

func (g *scripted) Forget(_ context.Context, _ time.Duration, keep func(owner, url string) bool) (int, error) {
	if g.forget != nil {
		g.forget(keep)
	}
	return 0, nil
}

// openService returns a Service on a database file, without background work.
func openService(t *testing.T, path string, cfg Config, git Git) *Service {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Key, cfg.PollInterval = []byte(strings.Repeat("k", 32)), time.Hour
	s, err := New(cfg, st, git)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Bootstrap(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return s
}

// atWork runs a Service until the test ends, or stop is called.
func atWork(t *testing.T, s *Service) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Work(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("working: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func deployFrom(t *testing.T, s *Service, tenant, name, url string) {
	t.Helper()
	_, err := s.CreateDeployment(t.Context(), auth.System(), tenant, CreateDeployment{Name: name, Source: fleet.Source{RepoURL: url}})
	if err != nil {
		t.Fatal(err)
	}
}

func awaitRendered(t *testing.T, s *Service, tenant, name string) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		d, err := s.Deployment(ctx, auth.System(), tenant, name)
		if err == nil && d.Rendered.Commit == "" {
			err = fmt.Errorf("not rendered: %s", d.Message)
		}
		return err
	})
}

// Invariant 12: the hosts of one tenant hang, and no other tenant waits.
func TestATenantWhoseHostsHangDelaysNoOther(t *testing.T) {
	t.Parallel()
	hanging := make(chan struct{}, 1000)
	git := &scripted{fetch: func(ctx context.Context, a gitsource.Access) error {
		if !strings.Contains(a.URL, "hangs") {
			return nil
		}
		hanging <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}}
	s := openService(t, sqlitetest.Path(t), Config{}, git)
	for _, tenant := range []string{"bad", "good"} {
		if _, err := s.CreateTenant(t.Context(), auth.System(), CreateTenant{Name: tenant}); err != nil {
			t.Fatal(err)
		}
	}
	atWork(t, s)
	for i := range 100 {
		deployFrom(t, s, "bad", fmt.Sprint("app-", i), fmt.Sprintf("https://hangs.example.com/%d.git", i))
	}
	<-hanging
	for i := range 20 {
		name := fmt.Sprint("app-", i)
		deployFrom(t, s, "good", name, fmt.Sprintf("https://good.example.com/%d.git", i))
		awaitRendered(t, s, "good", name)
	}
}

// An unused repository costs nothing.
func TestWorkersOfUnusedRepositoriesStopAndTheirMirrorsAreForgotten(t *testing.T) {
	t.Parallel()
	kept, owner := map[string]bool{}, ""
	git := &scripted{forget: func(keep func(owner, url string) bool) {
		for _, url := range []string{"https://example.com/a.git", "https://example.com/b.git"} {
			kept[url] = keep(owner, url)
		}
	}}
	s := openService(t, sqlitetest.Path(t), Config{}, git)
	if err := s.store.View(t.Context(), func(tx store.Tx) error {
		tenant, err := tx.Tenants().ByName(t.Context(), "default")
		owner = string(tenant.ID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	atWork(t, s)
	for _, name := range []string{"a", "b"} {
		deployFrom(t, s, "default", name, "https://example.com/"+name+".git")
		awaitRendered(t, s, "default", name)
	}
	if _, err := s.DeleteDeployment(t.Context(), auth.System(), "default", "a", Match{}); err != nil {
		t.Fatal(err)
	}
	if err := s.sources.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := s.sources.WorkerCount(); left != 1 || kept["https://example.com/a.git"] || !kept["https://example.com/b.git"] {
		t.Errorf("%d workers are left; kept: %v", left, kept)
	}
	deployFrom(t, s, "default", "a", "https://example.com/a.git")
	awaitRendered(t, s, "default", "a") // it starts again when it is needed
}

// covers: A16 (crash-safe): a run that a server was asked for before it died is started by the next.
func TestAServerThatStartsAgainGoesOnWithItsRuns(t *testing.T) {
	t.Parallel()
	path := sqlitetest.Path(t)
	first := openService(t, path, Config{}, &scripted{})
	deployFrom(t, first, "default", "app", "https://example.com/a.git")
	run, err := first.CreateRun(t.Context(), auth.System(), "default", "app", CreateRun{})
	if err != nil || run.Phase != fleet.RunPending {
		t.Fatalf("got %+v, %v", run, err)
	}
	_ = first.store.Close()
	second := openService(t, path, Config{}, &scripted{})
	atWork(t, second)
	testkit.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		run, err := second.Run(ctx, auth.System(), "default", run.ID)
		if err == nil && run.Phase != fleet.RunSucceeded {
			err = fmt.Errorf("it is %s: %s", run.Phase, run.Message)
		}
		return err
	})
}

// The fallback: a run whose agents never finish does not block the next one forever.
func TestARunTimesOut(t *testing.T) {
	t.Parallel()
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := openService(t, sqlitetest.Path(t), Config{RunTimeout: time.Minute, Now: func() time.Time { return clock }}, &scripted{})
	if _, err := s.EnrollAgent(t.Context(), auth.System(), "default", EnrollAgent{Name: "paris"}); err != nil {
		t.Fatal(err)
	}
	stop := atWork(t, s)
	deployFrom(t, s, "default", "app", "https://example.com/a.git")
	awaitRendered(t, s, "default", "app")
	var runs []fleet.SyncRun
	for range 2 {
		run, err := s.Rollback(t.Context(), auth.System(), "default", "app", Rollback{Revision: 1})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	stop()
	for _, step := range []struct {
		after time.Duration
		want  [2]fleet.RunPhase
	}{
		{30 * time.Second, [2]fleet.RunPhase{fleet.RunRunning, fleet.RunPending}},
		{31 * time.Second, [2]fleet.RunPhase{fleet.RunFailed, fleet.RunRunning}},
	} {
		clock = clock.Add(step.after)
		if err := s.planner.ExpireRuns(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, want := range step.want {
			run, err := s.Run(t.Context(), auth.System(), "default", runs[i].ID)
			if err != nil || run.Phase != want {
				t.Errorf("run %d is %s, not %s: %q %v", i, run.Phase, want, run.Message, err)
			}
		}
	}
}
