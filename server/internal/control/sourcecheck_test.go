package control_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// countingGit counts the fetches of a real Git.
type countingGit struct {
	*gitsource.Manager
	fetches atomic.Int64
}

func (g *countingGit) Fetch(ctx context.Context, a gitsource.Access, revisions []string) (map[string]gitsource.Ref, error) {
	g.fetches.Add(1)
	return g.Manager.Fetch(ctx, a, revisions)
}

// checker is a Service without background work: only checks read sources.
type checker struct {
	*control.Service
	git    *countingGit
	server *gitserver.Server
	repo   *gitserver.Repo
	url    string
}

func newChecker(t *testing.T, bound time.Duration) *checker {
	t.Helper()
	dir := t.TempDir()
	server, err := gitserver.Start(filepath.Join(dir, "remote"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	c := &checker{server: server, url: server.URL("apps")}
	if c.repo, err = server.CreateHosted("apps"); err != nil {
		t.Fatal(err)
	}
	manager, err := gitsource.New(gitsource.Config{Dir: filepath.Join(dir, "git"), Allow: []string{"http", "file"}, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.Close() })
	c.git = &countingGit{Manager: manager}
	db := newSQLite(t).open(t)
	t.Cleanup(func() { _ = db.Close() })
	now := time.Now() // stands still: what is remembered for seconds must not depend on the machine
	cfg := control.Config{Key: []byte(strings.Repeat("k", 32)), CheckTimeout: bound, Now: func() time.Time { return now }}
	if c.Service, err = control.New(cfg, db, c.git); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Bootstrap(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *checker) push(t *testing.T, files map[string]string) {
	t.Helper()
	if _, err := c.repo.CommitAndPush(t.Context(), files, "change"); err != nil {
		t.Fatal(err)
	}
}

func (c *checker) create(ctx context.Context, name string, source fleet.Source) (control.DeploymentView, error) {
	return c.CreateDeployment(ctx, admin, "default", control.CreateDeployment{Name: name, Source: source, Check: true})
}

// wrongSources are errors that a retry would not fix, with their field.
func (c *checker) wrongSources() map[string]struct {
	field  string
	source fleet.Source
} {
	return map[string]struct {
		field  string
		source fleet.Source
	}{
		"no such repository":  {"source.repoURL", fleet.Source{RepoURL: c.server.URL("nothing")}},
		"no such branch":      {"source.revision", fleet.Source{RepoURL: c.url, Path: "app", Revision: "mian"}},
		"no such commit":      {"source.revision", fleet.Source{RepoURL: c.url, Path: "app", Revision: strings.Repeat("a", 40)}},
		"no such folder":      {"source.path", fleet.Source{RepoURL: c.url, Path: "ap"}},
		"a file":              {"source.path", fleet.Source{RepoURL: c.url, Path: "app/cm.yaml"}},
		"no manifest":         {"source.path", fleet.Source{RepoURL: c.url, Path: "docs"}},
		"globs match nothing": {"source.globs", fleet.Source{RepoURL: c.url, Path: "app", Globs: []string{"*.json"}}},
	}
}

func TestWrongSourceIsToldWhenItIsStored(t *testing.T) {
	t.Parallel()
	c := newChecker(t, patience)
	c.push(t, map[string]string{"app/cm.yaml": configMap("a", "1"), "docs/readme.md": "# nothing"})
	good, err := c.create(t.Context(), "good", fleet.Source{RepoURL: c.url, Path: "app"})
	if err != nil || len(good.Warnings) > 0 {
		t.Fatalf("a good source: %v, %v", good.Warnings, err)
	}
	for reason, wrong := range c.wrongSources() {
		var invalid *fleet.InvalidError
		if _, err := c.create(t.Context(), "bad", wrong.source); !errors.As(err, &invalid) || invalid.Field != wrong.field {
			t.Errorf("%s: creating it gives %v, want a complaint about %s", reason, err, wrong.field)
		}
		edit := control.UpdateDeployment{Source: &wrong.source, Check: true}
		if _, err := c.UpdateDeployment(t.Context(), admin, "default", "good", edit, control.Match{}); !errors.As(err, &invalid) || invalid.Field != wrong.field {
			t.Errorf("%s: an edit to it gives %v, want a complaint about %s", reason, err, wrong.field)
		}
	}
	now, err := c.Deployment(t.Context(), admin, "default", "good")
	if err != nil || now.SpecRevision != good.SpecRevision {
		t.Errorf("a refused edit changed the deployment: %+v, %v", now.Source, err)
	}
	if list, err := c.Deployments(t.Context(), admin, "default", control.ListDeployments{}); err != nil || len(list) != 1 {
		t.Errorf("a refused deployment was stored: %d, %v", len(list), err)
	}
	repos, err := c.Repositories(t.Context(), admin, "default", store.RepositoryFilter{})
	if err != nil || len(repos) != 1 {
		t.Errorf("a refused deployment left its repository: %v, %v", repos, err)
	}
}

func TestUncheckedAndUnknowableSourcesAreStored(t *testing.T) {
	t.Parallel()
	c := newChecker(t, patience)
	c.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	made, err := c.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{Name: "unchecked", Source: fleet.Source{RepoURL: c.url, Path: "later"}})
	if err != nil || len(made.Warnings) > 0 || c.git.fetches.Load() > 0 {
		t.Errorf("without a check: %v, %v after %d fetches", made.Warnings, err, c.git.fetches.Load())
	}
	made, err = c.create(t.Context(), "templated", fleet.Source{RepoURL: c.url, Path: "overlays/{agent.name}"})
	if err != nil || len(made.Warnings) > 0 {
		t.Errorf("a folder that is another one for each agent: %v, %v", made.Warnings, err)
	}
	if _, err := c.server.CreateHosted("empty"); err != nil {
		t.Fatal(err)
	}
	made, err = c.create(t.Context(), "empty", fleet.Source{RepoURL: c.server.URL("empty")})
	if err != nil || len(made.Warnings) != 1 || !strings.Contains(made.Warnings[0], "is empty") {
		t.Errorf("an empty repository: %v, %v", made.Warnings, err)
	}
	c.server.SetFailure(502, 0)
	made, err = c.create(t.Context(), "away", fleet.Source{RepoURL: c.url, Path: "app", Revision: "main"})
	if err != nil || len(made.Warnings) != 1 || !strings.Contains(made.Warnings[0], "not checked") {
		t.Errorf("a host that fails: %v, %v", made.Warnings, err)
	}
}

func TestSlowHostDelaysACreationForABoundedTime(t *testing.T) {
	t.Parallel()
	c := newChecker(t, 50*time.Millisecond)
	c.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	c.server.SetDelay(time.Hour)
	made, err := c.create(t.Context(), "slow", fleet.Source{RepoURL: c.url, Path: "app"})
	if err != nil || len(made.Warnings) != 1 || !strings.Contains(made.Warnings[0], "not checked") {
		t.Errorf("got %v, %v; want it stored with a warning", made.Warnings, err)
	}
}

// A thousand concurrent deployments of one repository must not cost a fetch each.
func TestManyCreationsShareOneFetch(t *testing.T) {
	t.Parallel()
	const n = 100
	c := newChecker(t, patience)
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("apps/%d/cm.yaml", i)] = configMap("a", "1")
	}
	c.push(t, files)
	var creations sync.WaitGroup
	for i := range n {
		creations.Go(func() {
			if made, err := c.create(t.Context(), fmt.Sprint("app-", i), fleet.Source{RepoURL: c.url, Path: fmt.Sprint("apps/", i)}); err != nil || len(made.Warnings) > 0 {
				t.Errorf("creation %d: %v, %v", i, made.Warnings, err)
			}
		})
	}
	creations.Wait()
	for i := range 3 { // one after another
		if _, err := c.create(t.Context(), fmt.Sprint("later-", i), fleet.Source{RepoURL: c.url, Path: fmt.Sprint("apps/", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.git.fetches.Load(); got != 1 {
		t.Errorf("%d creations made %d fetches, want 1", n+3, got)
	}
	// Newer pushes are read from the remote before a refusal.
	c.push(t, map[string]string{"apps/new/cm.yaml": configMap("a", "1")})
	if made, err := c.create(t.Context(), "new", fleet.Source{RepoURL: c.url, Path: "apps/new"}); err != nil || len(made.Warnings) > 0 {
		t.Errorf("a folder that was pushed a moment ago: %v, %v", made.Warnings, err)
	}
}

// A check must not reveal what another tenant may read, nor anything to a caller without the role.
func TestCheckIsForWhoMayDeploy(t *testing.T) {
	t.Parallel()
	c := newChecker(t, patience)
	c.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	made, err := c.CreateTenant(t.Context(), admin, control.CreateTenant{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	viewer := auth.Principal{Name: "viewer", Roles: map[fleet.TenantID]fleet.Role{made.ID: fleet.RoleViewer}}
	_, err = c.CreateDeployment(t.Context(), viewer, "other", control.CreateDeployment{Name: "a", Source: fleet.Source{RepoURL: c.url, Path: "ap"}, Check: true})
	if !errors.Is(err, auth.ErrForbidden) || c.git.fetches.Load() > 0 {
		t.Errorf("a viewer gets %v after %d fetches", err, c.git.fetches.Load())
	}
	_, err = c.CreateDeployment(t.Context(), admin, "other", control.CreateDeployment{
		Name: "a", Source: fleet.Source{RepoURL: c.url, Path: "ap"}, Environment: "nowhere", Check: true,
	})
	var invalid *fleet.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != "environment" || c.git.fetches.Load() > 0 {
		t.Errorf("an environment that does not exist gives %v after %d fetches", err, c.git.fetches.Load())
	}
}
