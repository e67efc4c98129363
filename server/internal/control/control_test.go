package control_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/seal"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const patience = 30 * time.Second

var admin = auth.Principal{Name: "admin", FleetAdmin: true, Component: "rest"}

// room is a Service on a real database with a real Git server.
type replica struct {
	*control.Service
	store store.Store
	git   *gitserver.Server
	repo  *gitserver.Repo
	url   string
	kill  func() // stops it like a crash
}

// newRoom starts one on SQLite. Polls are rare: tests observe effects of events.
func newReplica(t *testing.T) *replica {
	t.Helper()
	return newPollingReplica(t, time.Hour)
}

func newPollingReplica(t *testing.T, poll time.Duration) *replica {
	t.Helper()
	return newReplicas(t, newSQLite(t), 1, control.Config{PollInterval: poll})[0]
}

// newRooms starts n replicas on one database, with one Git server.
func newReplicas(t *testing.T, db *testDatabase, n int, cfg control.Config) []*replica {
	t.Helper()
	dir := t.TempDir()
	git, err := gitserver.Start(filepath.Join(dir, "remote"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = git.Close() })
	repo, err := git.CreateHosted("apps")
	if err != nil {
		t.Fatal(err)
	}
	cfg = testConfig(t, db, cfg)
	var replicas []*replica
	for i := range n {
		r := &replica{git: git, repo: repo, url: git.URL("apps"), store: db.open(t)}
		r.start(t, filepath.Join(dir, fmt.Sprint("git-", i)), cfg)
		replicas = append(replicas, r)
	}
	return replicas
}

// testConfig completes the configuration of a replica.
func testConfig(t *testing.T, db *testDatabase, cfg control.Config) control.Config {
	t.Helper()
	if cfg.PollInterval == 0 {
		cfg.PollInterval = time.Hour
	}
	ring, err := seal.Parse([]byte("k1:" + strings.Repeat("A", 43) + "=\n"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Key, cfg.Version, cfg.Log, cfg.Shared, cfg.Sealer = []byte(strings.Repeat("k", 32)), "test", slog.New(slog.DiscardHandler), db.shared, ring
	return cfg
}

func (r *replica) start(t *testing.T, dir string, cfg control.Config) {
	t.Helper()
	manager, err := gitsource.New(gitsource.Config{Dir: dir, Allow: []string{"http", "file"}, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.Service, err = control.New(cfg, r.store, manager); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Bootstrap(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Work(ctx) }()
	killed := false
	stop := func() error {
		cancel()
		return <-done
	}
	r.kill = func() {
		killed = true
		_ = r.store.Close() // further writes fail
		_ = stop()
	}
	t.Cleanup(func() {
		if !killed {
			if err := stop(); err != nil {
				t.Errorf("Work: %v", err)
			}
		}
		_ = manager.Close()
		_ = r.store.Close()
	})
}

// push commits files, pushes them, and notifies control, like a webhook.
func (r *replica) push(t *testing.T, files map[string]string) string {
	t.Helper()
	commit, err := r.repo.CommitAndPush(t.Context(), files, "change")
	if err != nil {
		t.Fatal(err)
	}
	repos, err := r.Repositories(t.Context(), admin, "default", store.RepositoryFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, repo := range repos {
		if err := r.Push(t.Context(), repo.ID, "refs/heads/main"); err != nil {
			t.Fatal(err)
		}
	}
	return commit
}

func (r *replica) enroll(t *testing.T, name string) fleet.Agent {
	t.Helper()
	e, err := r.EnrollAgent(t.Context(), admin, "default", control.EnrollAgent{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return e.Agent
}

func (r *replica) deploy(t *testing.T, name, path string) {
	t.Helper()
	_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
		Name: name, Source: fleet.Source{RepoURL: r.url, Path: path},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// await waits until check accepts a deployment.
func (r *replica) await(t *testing.T, name string, check func(control.DeploymentView) error) control.DeploymentView {
	t.Helper()
	var d control.DeploymentView
	testkit.Eventually(t, patience, func(ctx context.Context) (err error) {
		if d, err = r.Deployment(ctx, admin, "default", name); err != nil {
			return err
		}
		return check(d)
	})
	return d
}

func atCommit(commit string) func(control.DeploymentView) error {
	return func(d control.DeploymentView) error {
		if d.Rendered.Commit != commit {
			return fmt.Errorf("rendered %q, not %q; %s", d.Rendered.Commit, commit, d.Message)
		}
		return nil
	}
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  value: %q\n", name, value)
}
