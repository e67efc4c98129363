package control_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/seal"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite/sqlitetest"
)

// root is a fleet admin.
var root = auth.Principal{Name: "root", FleetAdmin: true, Component: "rest", Request: "req-1", Address: "192.0.2.1"}

// desk is a Service on a real database without background work and without Git: the test adds renders.
type fixture struct {
	*control.Service
	store store.Store
	clock *clock
	ctx   context.Context // of the test
}

// clock is a manual clock.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// noGit accepts every URL and reaches none.
type noGit struct{ control.Git }

func (noGit) CheckURL(url string) (string, error) { return url, nil }

func (noGit) Fetch(_ context.Context, _ gitsource.Access, revisions []string) (map[string]gitsource.Ref, error) {
	refs := map[string]gitsource.Ref{}
	for _, revision := range revisions {
		refs[revision] = gitsource.Ref{Err: &gitsource.RefNotFoundError{Revision: revision}}
	}
	return refs, nil
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	d, closeFixture := openFixture(t, blank(t))
	t.Cleanup(closeFixture)
	return d
}

// seed is a database after the first start. It is created once, because the migrations would take most of the
// time of these tests.
var seed struct {
	once sync.Once
	data []byte
}

// blank returns the path of a database as it is after the first start.
func blank(t *testing.T) string {
	t.Helper()
	seed.once.Do(func() {
		path := sqlitetest.Path(t)
		_, closeFixture := openFixture(t, path)
		closeFixture()
		seed.data = readFile(t, path)
	})
	return copyOf(t, seed.data)
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	ok(t, err)
	return data
}

// copyOf copies a database into a new file.
func copyOf(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kedge.db")
	ok(t, os.WriteFile(path, data, 0o600))
	return path
}

// openDesk is newDesk on a database that is there, for those who need many.
func openFixture(t *testing.T, path string) (*fixture, func()) {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	ok(t, err)
	c := &clock{now: time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)}
	key, err := seal.NewKey("test")
	ok(t, err)
	keys, err := seal.Parse([]byte(key))
	ok(t, err)
	svc, err := control.New(control.Config{Key: []byte(strings.Repeat("k", 32)), Sealer: keys, Version: "test", Now: c.Now}, st, noGit{})
	ok(t, err)
	_, err = svc.Bootstrap(t.Context(), false)
	ok(t, err)
	return &fixture{Service: svc, store: st, clock: c, ctx: t.Context()}, func() { _ = st.Close() }
}

// failer is what *testing.T and *rapid.T share.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// ok fails the test unless a use-case went well.
func ok(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (d *fixture) tenant(t failer, name string) fleet.Tenant {
	t.Helper()
	out, err := d.CreateTenant(d.ctx, root, control.CreateTenant{Name: name})
	ok(t, err)
	return out
}

func (d *fixture) enroll(t failer, tenant, name string, labels map[string]string) fleet.Agent {
	t.Helper()
	e, err := d.EnrollAgent(d.ctx, root, tenant, control.EnrollAgent{Name: name, Labels: labels})
	ok(t, err)
	return e.Agent
}

func (d *fixture) deploy(t failer, tenant, name, environment string) control.DeploymentView {
	t.Helper()
	v, err := d.CreateDeployment(d.ctx, root, tenant, control.CreateDeployment{
		Name: name, Environment: environment, Source: fleet.Source{RepoURL: "https://git.example.com/apps.git", Path: name},
	})
	ok(t, err)
	return v
}

// render makes objects the newest revision of a deployment, and settles it.
func (d *fixture) render(t failer, tenant, name, value string) string {
	t.Helper()
	digest := d.rendered(t, tenant, name, configMap("a", value))
	_, err := d.SuspendTenant(d.ctx, root, tenant, "rendering")
	ok(t, err)
	_, err = d.ResumeTenant(d.ctx, root, tenant)
	ok(t, err)
	return digest
}

// rendered records a revision without settling anything.
func (d *fixture) rendered(t failer, tenant, name, yaml string) string {
	t.Helper()
	objects, err := manifest.Parse("test", []byte(yaml))
	ok(t, err)
	set, err := manifest.NewSet(objects, "default")
	ok(t, err)
	digest, content, size := set.Pack()
	err = d.store.Update(d.ctx, func(tx store.Tx) error {
		owner, err := tx.Tenants().ByName(d.ctx, tenant)
		if err != nil {
			return err
		}
		dep, err := tx.Deployments().ByName(d.ctx, owner.ID, name)
		if err != nil {
			return err
		}
		now := d.clock.Now()
		err = tx.Bundles().Put(d.ctx, fleet.Bundle{
			TenantID: owner.ID, Digest: digest, Content: content, Size: size, Objects: len(objects), CreatedAt: now,
		})
		if err != nil {
			return err
		}
		r := fleet.Rendered{Commit: strings.Repeat("c", 40), Key: digest, Digest: digest, At: now}
		if err := tx.Deployments().SetRendered(d.ctx, owner.ID, dep.ID, r); err != nil {
			return err
		}
		_, err = tx.Revisions().Append(d.ctx, owner.ID, dep.ID, fleet.Revision{
			Commit: r.Commit, RenderedAt: now, Bundles: map[string]string{"": digest},
		}, 10)
		return err
	})
	ok(t, err)
	return digest
}

// edit edits a deployment and puts the edit in force, like its worker.
func (d *fixture) edit(t failer, tenant, name string, req control.UpdateDeployment) {
	t.Helper()
	view, err := d.UpdateDeployment(d.ctx, root, tenant, name, req, control.Match{})
	ok(t, err)
	ok(t, control.PutInForce(d.ctx, d.Service, view.Deployment))
}

// targets returns the targets of a deployment that is not deleted, by agent.
func (d *fixture) targets(t failer, tenant, name string) map[string]fleet.Target {
	t.Helper()
	out := map[string]fleet.Target{}
	err := d.store.View(d.ctx, func(tx store.Tx) error {
		owner, err := tx.Tenants().ByName(d.ctx, tenant)
		if err != nil {
			return err
		}
		dep, err := tx.Deployments().ByName(d.ctx, owner.ID, name)
		if err != nil {
			return err
		}
		targets, err := tx.Targets().OfDeployment(d.ctx, owner.ID, dep.ID)
		for _, target := range targets {
			out[target.AgentName] = target
		}
		return err
	})
	ok(t, err)
	return out
}

// place returns the state of a target in one word.
func place(t fleet.Target) string {
	switch {
	case t.ID == "":
		return "none"
	case t.Desired.Tombstone:
		return "tombstone"
	case !t.DetachedAt.IsZero() && t.Desired.Detached:
		return "detached"
	case !t.DetachedAt.IsZero() || t.Desired.Detached:
		return fmt.Sprintf("half detached: %+v", t)
	case t.Desired.Digest == "":
		return "empty"
	default:
		return "attached"
	}
}

// lastChange returns the newest record of the outbox: if it is equal before and after, nothing was written.
func (d *fixture) lastChange(t failer) int64 {
	t.Helper()
	var last int64
	err := d.store.View(d.ctx, func(tx store.Tx) (err error) {
		last, err = tx.Changes().Last(d.ctx)
		return err
	})
	ok(t, err)
	return last
}

// wantConflict fails unless err is a ConflictError with a text.
func wantConflict(t failer, err error, says string) {
	t.Helper()
	var conflict *control.ConflictError
	if !errors.As(err, &conflict) || !strings.Contains(conflict.Reason, says) {
		t.Fatalf("got %v, want a conflict with %q", err, says)
	}
}

// wantInvalid fails unless err is an InvalidError about a field.
func wantInvalid(t failer, err error, field string) {
	t.Helper()
	var invalid *fleet.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != field {
		t.Fatalf("got %v, want a problem with %s", err, field)
	}
}

// member returns a person with a role in one tenant.
func member(t fleet.Tenant, role fleet.Role) auth.Principal {
	return auth.Principal{Name: string(role), Component: "rest", Roles: map[fleet.TenantID]fleet.Role{t.ID: role}}
}
