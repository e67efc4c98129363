package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var deploymentTests = map[string]func(*testing.T, store.Store){
	"are read with the names of their references":     deploymentsAreWhole,
	"free their name when they are deleted":           deploymentNames,
	"are listed page by page, the deleted among them": deploymentsArePaged,
	"remember the newest render and error":            deploymentRenders,
	"stay until their targets are gone":               deploymentRemoval,
	"refer to rows that exist":                        deploymentReferences,
	"are edited":                                      deploymentsAreEdited,
	"have variants":                                   deploymentVariants,
}

func getDeployment(t *testing.T, s store.Store, w *world) fleet.Deployment {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Deployment, error) {
		return tx.Deployments().Get(ctx, w.tenant.ID, w.deployment.ID)
	})
}

func listDeployments(t *testing.T, s store.Store, w *world, f store.DeploymentFilter) []fleet.Deployment {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Deployment, error) {
		return tx.Deployments().List(ctx, w.tenant.ID, f)
	})
}

func deploymentsAreWhole(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	same(t, "by id", getDeployment(t, s, w), w.deployment)
	same(t, "by name", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Deployment, error) {
		return tx.Deployments().ByName(ctx, w.tenant.ID, w.deployment.Name)
	}), w.deployment)
	bare := fleet.Deployment{
		ID: fleet.NewDeploymentID(), TenantID: w.tenant.ID, Name: "bare", RepositoryID: w.repo.ID,
		EnvironmentTenant: w.tenant.ID, EnvironmentID: w.env.ID, SpecRevision: 1, SourceRevision: 1, CreatedAt: at(1),
	}
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Deployments().Create(ctx, bare) })
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeDeployment, ID: string(bare.ID), DeploymentID: bare.ID}})
	bare.Environment, bare.Source.RepoURL = w.env.Name, w.repo.URL
	want := []fleet.Deployment{bare, w.deployment}
	listings := map[string]func(context.Context, store.Tx) ([]fleet.Deployment, error){
		"List": func(ctx context.Context, tx store.Tx) ([]fleet.Deployment, error) {
			return tx.Deployments().List(ctx, w.tenant.ID, store.DeploymentFilter{})
		},
		"OfRepository": func(ctx context.Context, tx store.Tx) ([]fleet.Deployment, error) {
			return tx.Deployments().OfRepository(ctx, w.tenant.ID, w.repo.ID)
		},
		"OfEnvironmentAllTenants": func(ctx context.Context, tx store.Tx) ([]fleet.Deployment, error) {
			return tx.Deployments().OfEnvironmentAllTenants(ctx, w.env.ID)
		},
	}
	for name, list := range listings {
		same(t, name, read(t, s, list), want)
	}
	same(t, "count", countDeployments(t, s, w), 2)
	same(t, "in brief", briefs(t, s, w), []store.DeploymentBrief{
		{ID: bare.ID}, {ID: w.deployment.ID, Revision: w.deployment.Source.Revision, Rendered: w.deployment.Rendered.Commit != ""}})
}

func briefs(t *testing.T, s store.Store, w *world) []store.DeploymentBrief {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) ([]store.DeploymentBrief, error) {
		return tx.Deployments().BriefsOfRepository(ctx, w.tenant.ID, w.repo.ID)
	})
}

func countDeployments(t *testing.T, s store.Store, w *world) int {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (int, error) { return tx.Deployments().Count(ctx, w.tenant.ID) })
}

// covers: T5
func deploymentNames(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	current := w.deployment
	for round := range 3 {
		refuse(t, s, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
			return tx.Deployments().Create(ctx, newDeployment(w, "shop"))
		})
		before := last(t, s)
		for _, n := range []int{100, 200} { // the first time counts
			update(t, s, func(ctx context.Context, tx store.Tx) error {
				return tx.Deployments().MarkDeleted(ctx, w.tenant.ID, current.ID, at(n+round))
			})
		}
		same(t, "changes", since(t, s, before), []store.Change{
			{TenantID: w.tenant.ID, Kind: store.ChangeDeployment, ID: string(current.ID), DeploymentID: current.ID}})
		gone := read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Deployment, error) {
			return tx.Deployments().Get(ctx, w.tenant.ID, current.ID)
		})
		same(t, "deleted at", gone.DeletedAt, at(100+round))
		missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Deployment, error) {
			return tx.Deployments().ByName(ctx, w.tenant.ID, "shop")
		})
		current = newDeployment(w, "shop")
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Deployments().Create(ctx, current) })
	}
	found := read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Deployment, error) {
		return tx.Deployments().ByName(ctx, w.tenant.ID, "shop")
	})
	same(t, "the one of that name", found.ID, current.ID)
	of := read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Deployment, error) {
		return tx.Deployments().OfRepository(ctx, w.tenant.ID, w.repo.ID)
	})
	if brief := briefs(t, s, w); len(brief) != 1 || brief[0].ID != current.ID {
		t.Errorf("in brief the repository has %+v", brief)
	}
	if len(of) != 1 || of[0].ID != current.ID {
		t.Errorf("deployments of the repository: got %v, want only the one that is not deleted", of)
	}
	same(t, "count", countDeployments(t, s, w), 1)
}

func deploymentsArePaged(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	want := []string{string(w.deployment.ID)}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		for _, name := range []string{"b", "b", "b", "a", "z"} {
			d := newDeployment(w, name)
			d.DeletedAt = at(50) // one name, several times
			want = append(want, string(d.ID))
			if err := tx.Deployments().Create(ctx, d); err != nil {
				return err
			}
		}
		return nil
	})
	var got []string
	page := store.DeploymentFilter{Page: store.Page{Limit: 2}}
	for {
		rows := listDeployments(t, s, w, page)
		if len(rows) == 0 {
			break
		}
		if len(rows) > 2 {
			t.Fatalf("page: got %d rows, want at most 2", len(rows))
		}
		for _, d := range rows {
			got = append(got, string(d.ID))
		}
		page.After, page.AfterID = rows[len(rows)-1].Name, string(rows[len(rows)-1].ID)
	}
	slices.Sort(got)
	slices.Sort(want)
	same(t, "all pages", got, want)
	rest := listDeployments(t, s, w, store.DeploymentFilter{Page: store.Page{After: "b"}})
	if len(rest) != 2 || rest[0].Name != "shop" || rest[1].Name != "z" {
		t.Errorf("after a name without an id: got %d rows, want shop and z", len(rest))
	}
}

func deploymentRenders(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	bundle := newBundle(w.tenant.ID, "two")
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Bundles().Put(ctx, bundle) })
	rendered := fleet.Rendered{Commit: "beef", Key: "key-2", Digest: bundle.Digest, At: at(40)}
	later := rendered
	later.At = at(90)
	steps := []struct {
		reason  string
		do      func(context.Context, store.Deployments) error
		expect  func(*fleet.Deployment)
		changes int
	}{
		{"an error keeps the last render", func(ctx context.Context, d store.Deployments) error {
			return d.SetSourceError(ctx, w.tenant.ID, w.deployment.ID, fleet.ReasonRenderFailed, "bad yaml", at(30))
		}, func(d *fleet.Deployment) {
			d.SourceReason, d.SourceError, d.SourceSince = fleet.ReasonRenderFailed, "bad yaml", at(30)
		}, 1},
		{"the same error is no change", func(ctx context.Context, d store.Deployments) error {
			return d.SetSourceError(ctx, w.tenant.ID, w.deployment.ID, fleet.ReasonRenderFailed, "bad yaml", at(35))
		}, func(*fleet.Deployment) {}, 0},
		{"a render clears the error", func(ctx context.Context, d store.Deployments) error {
			return d.SetRendered(ctx, w.tenant.ID, w.deployment.ID, rendered)
		}, func(d *fleet.Deployment) {
			d.SourceReason, d.SourceError, d.SourceSince, d.Rendered = "", "", at(40), rendered
		}, 1},
		{"the same render is no change", func(ctx context.Context, d store.Deployments) error {
			return d.SetRendered(ctx, w.tenant.ID, w.deployment.ID, later)
		}, func(*fleet.Deployment) {}, 0},
		{"another input is a change", func(ctx context.Context, d store.Deployments) error {
			return d.SetDetected(ctx, w.tenant.ID, w.deployment.ID, fleet.SourceKustomize)
		}, func(d *fleet.Deployment) { d.Detected = fleet.SourceKustomize }, 1},
		{"the same is no change", func(ctx context.Context, d store.Deployments) error {
			return d.SetDetected(ctx, w.tenant.ID, w.deployment.ID, fleet.SourceKustomize)
		}, func(*fleet.Deployment) {}, 0},
		{"a new error", func(ctx context.Context, d store.Deployments) error {
			return d.SetSourceError(ctx, w.tenant.ID, w.deployment.ID, fleet.ReasonPathNotFound, "no such path", at(50))
		}, func(d *fleet.Deployment) {
			d.SourceReason, d.SourceError, d.SourceSince = fleet.ReasonPathNotFound, "no such path", at(50)
		}, 1},
		{"the same render clears it, too", func(ctx context.Context, d store.Deployments) error {
			return d.SetRendered(ctx, w.tenant.ID, w.deployment.ID, later)
		}, func(d *fleet.Deployment) {
			d.SourceReason, d.SourceError, d.SourceSince, d.Rendered = "", "", at(90), later
		}, 1},
	}
	want := w.deployment
	for _, step := range steps {
		before := last(t, s)
		update(t, s, func(ctx context.Context, tx store.Tx) error { return step.do(ctx, tx.Deployments()) })
		step.expect(&want)
		same(t, step.reason, getDeployment(t, s, w), want)
		if got := len(since(t, s, before)); got != step.changes {
			t.Errorf("%s: got %d changes, want %d", step.reason, got, step.changes)
		}
	}
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.Deployments().SetRendered(ctx, w.tenant.ID, w.deployment.ID, fleet.Rendered{Digest: "sha256:unknown", At: at(99)})
	})
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.Deployments().SetSourceError(ctx, w.tenant.ID, fleet.NewDeploymentID(), fleet.ReasonRenderFailed, "x", at(99))
	})
	same(t, "after the refused edit", getDeployment(t, s, w), want)
}

func deploymentRemoval(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Deployments().MarkDeleted(ctx, w.tenant.ID, w.deployment.ID, at(50))
	})
	remove := func(ctx context.Context, tx store.Tx) error {
		return tx.Deployments().Remove(ctx, w.tenant.ID, w.deployment.ID)
	}
	refuse(t, s, store.ErrExists, remove)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Targets().Remove(ctx, w.tenant.ID, w.target.ID)
	})
	before := last(t, s)
	update(t, s, remove)
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeDeployment, ID: string(w.deployment.ID), DeploymentID: w.deployment.ID}})
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Deployment, error) {
		return tx.Deployments().Get(ctx, w.tenant.ID, w.deployment.ID)
	})
	refuse(t, s, store.ErrNotFound, remove)
}

func deploymentReferences(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	spoil := map[string]func(*fleet.Deployment){
		"repository":  func(d *fleet.Deployment) { d.RepositoryID = fleet.NewRepositoryID() },
		"environment": func(d *fleet.Deployment) { d.EnvironmentID = fleet.NewEnvironmentID() },
		"bundle":      func(d *fleet.Deployment) { d.Rendered.Digest = "sha256:unknown" },
	}
	for what, fn := range spoil {
		d := newDeployment(w, "no-"+what)
		fn(&d)
		refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error { return tx.Deployments().Create(ctx, d) })
	}
}

func deploymentsAreEdited(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	repo := fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: w.tenant.ID, URL: "https://git.example/other.git", CreatedAt: at(1)}
	env := fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: w.tenant.ID, Name: "production", CreatedAt: at(1)}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Repositories().Create(ctx, repo), tx.Environments().Create(ctx, env))
	})
	want := w.deployment
	want.Labels = map[string]string{"team": "db"}
	want.RepositoryID, want.EnvironmentID, want.Namespace = repo.ID, env.ID, "elsewhere"
	want.Source = fleet.Source{Path: "charts/web", Revision: "v2", Variables: map[string]string{"size": "2"}}
	want.Policy = fleet.Policy{AllowEmpty: true, Manual: true}
	want.Suspension, want.Pin = fleet.Suspension{}, fleet.Pin{Revision: 7, Commit: "beef", At: at(60), By: "bob", SourceRevision: 3, TerminatedRun: 4}
	want.Source.Kind, want.Source.Helm = fleet.SourceHelm, fleet.Helm{ReleaseName: "other", ValuesFiles: []string{"b.yaml"}, Values: `{"b":2}`,
		Set: []fleet.HelmSet{{Type: fleet.HelmSetString, Expression: "b=012"}}}
	edited := want
	edited.Name, edited.SourceError, edited.Rendered = "renamed", "made up", fleet.Rendered{} // which an edit does not do
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Deployments().Update(ctx, edited) })
	want.SpecRevision, want.Source.RepoURL, want.Environment = 2, repo.URL, env.Name
	same(t, "deployment", getDeployment(t, s, w), want)
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeDeployment, ID: string(want.ID), DeploymentID: want.ID}})
	for text, found := range map[string]int{"charts": 1, "hart": 1, "deploy": 0, "shop": 1} {
		same(t, "found by "+text, len(listDeployments(t, s, w, store.DeploymentFilter{Text: text})), found)
	}
	for label, found := range map[string]int{"db": 1, "web": 0} {
		same(t, "found by label "+label, len(listDeployments(t, s, w, store.DeploymentFilter{Labels: map[string]string{"team": label}})), found)
	}
	spoil := map[string]func(*fleet.Deployment){
		"itself":      func(d *fleet.Deployment) { d.ID = fleet.NewDeploymentID() },
		"repository":  func(d *fleet.Deployment) { d.RepositoryID = fleet.NewRepositoryID() },
		"environment": func(d *fleet.Deployment) { d.EnvironmentID = fleet.NewEnvironmentID() },
	}
	for _, fn := range spoil {
		d := want
		fn(&d)
		refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error { return tx.Deployments().Update(ctx, d) })
	}
	same(t, "after the refused edit", getDeployment(t, s, w), want)
}

func deploymentVariants(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	record := store.Change{TenantID: w.tenant.ID, Kind: store.ChangeDeployment, ID: string(w.deployment.ID), DeploymentID: w.deployment.ID}
	first, second := w.variant, fleet.Variant{Name: "a2"}
	later := first
	later.Rendered.At = at(90)
	healed := first
	healed.Error, healed.Rendered.At = "", at(91)
	put := func(v fleet.Variant) func(context.Context, store.Deployments) error {
		return func(ctx context.Context, d store.Deployments) error {
			return d.PutVariant(ctx, w.tenant.ID, w.deployment.ID, v)
		}
	}
	keep := func(names ...string) func(context.Context, store.Deployments) error {
		return func(ctx context.Context, d store.Deployments) error {
			return d.KeepVariants(ctx, w.tenant.ID, w.deployment.ID, names)
		}
	}
	steps := []struct {
		reason  string
		do      func(context.Context, store.Deployments) error
		want    []fleet.Variant
		changes []store.Change
	}{
		{"a second one", put(second), []fleet.Variant{second, first}, []store.Change{record}},
		{"nothing but a later time", put(later), []fleet.Variant{second, first}, nil},
		{"one that is fixed", put(healed), []fleet.Variant{second, healed}, []store.Change{record}},
		{"all are kept", keep("a2", "v1", "x"), []fleet.Variant{second, healed}, nil},
		{"one is kept", keep("v1"), []fleet.Variant{healed}, []store.Change{record}},
		{"none is kept", keep(), nil, []store.Change{record}},
	}
	for _, step := range steps {
		before := last(t, s)
		update(t, s, func(ctx context.Context, tx store.Tx) error { return step.do(ctx, tx.Deployments()) })
		same(t, step.reason, read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Variant, error) {
			return tx.Deployments().Variants(ctx, w.tenant.ID, w.deployment.ID)
		}), step.want)
		same(t, step.reason+": changes", since(t, s, before), step.changes)
	}
	for _, v := range []fleet.Variant{{Name: "x", Rendered: fleet.Rendered{Digest: "sha256:unknown"}}} {
		refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error { return put(v)(ctx, tx.Deployments()) })
	}
}
