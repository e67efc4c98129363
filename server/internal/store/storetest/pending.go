package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var pendingTests = map[string]func(*testing.T, store.Store){
	"specs are stored in addition to the one in force":               pendingSpecsAreKept,
	"specs have a problem":                                           pendingProblems,
	"specs take effect":                                              pendingSpecsComeIntoForce,
	"specs that are withdrawn leave nothing":                         pendingSpecsAreWithdrawn,
	"specs prevent the deletion of their repository and environment": pendingSpecsHold,
	"a source revision is written without a change record":           sourceRevisionsAreWritten,
	"removed deployments lose theirs":                                pendingSpecsGoWithDeployments,
	"deployments that have a problem count as failed":                pendingProblemsAreFailures,
}

// newPending differs from newDeployment in every field of a spec.
func newPending(w *world, d fleet.Deployment) fleet.PendingSpec {
	return fleet.PendingSpec{
		TenantID: d.TenantID, DeploymentID: d.ID, Labels: map[string]string{"team": "db"}, RepositoryID: w.repo.ID,
		Source: fleet.Source{Path: "other", Revision: "v2", Globs: []string{"b/*.yaml", "a/*.yaml"},
			Variables: map[string]string{"size": `"2" {agent.name}`}, Kind: fleet.SourceKustomize,
			Helm: fleet.Helm{ReleaseName: "q", ValuesFiles: []string{"y.yaml"}, Values: `{"b":2}`, SkipCRDs: true, Set: []fleet.HelmSet{{Type: fleet.HelmSetString, Expression: "c=1"}}}},
		EnvironmentTenant: w.tenant.ID, EnvironmentID: w.env.ID, Namespace: "elsewhere",
		Policy: fleet.Policy{AllowEmpty: true, Manual: true, CreateNamespace: true}, By: "bob", EditedAt: at(60), Reason: fleet.ReasonSourceNotRead,
	}
}

// withPending gives the deployment of a world a pending spec.
func withPending(t *testing.T, s store.Store, w *world) fleet.PendingSpec {
	t.Helper()
	p := newPending(w, w.deployment)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.PendingSpecs().Put(ctx, p) })
	w.deployment.SpecRevision++
	w.deployment.PendingSpecRevision = w.deployment.SpecRevision
	p.SpecRevision, p.Environment, p.Source.RepoURL = w.deployment.SpecRevision, w.env.Name, w.repo.URL
	return p
}

func getPending(t *testing.T, s store.Store, w *world) fleet.PendingSpec {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (fleet.PendingSpec, error) {
		return tx.PendingSpecs().Get(ctx, w.tenant.ID, w.deployment.ID)
	})
}

func pendingSpecsAreKept(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.PendingSpecs().Get(ctx, w.tenant.ID, w.deployment.ID)
		return err
	})
	before := last(t, s)
	p := withPending(t, s, w)
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeDeployment, ID: string(w.deployment.ID), DeploymentID: w.deployment.ID}})
	same(t, "the spec in force", getDeployment(t, s, w), w.deployment)
	same(t, "by deployment", getPending(t, s, w), p)
	for name, list := range map[string]func(ctx context.Context, tx store.Tx) ([]fleet.PendingSpec, error){
		"of deployments": func(ctx context.Context, tx store.Tx) ([]fleet.PendingSpec, error) {
			return tx.PendingSpecs().Of(ctx, w.tenant.ID, []fleet.DeploymentID{w.deployment.ID, "other"})
		},
		"of a repository": func(ctx context.Context, tx store.Tx) ([]fleet.PendingSpec, error) {
			return tx.PendingSpecs().OfRepository(ctx, w.tenant.ID, w.repo.ID)
		},
		"of an environment": func(ctx context.Context, tx store.Tx) ([]fleet.PendingSpec, error) {
			return tx.PendingSpecs().OfEnvironmentAllTenants(ctx, w.env.ID)
		},
	} {
		same(t, name, read(t, s, list), []fleet.PendingSpec{p})
	}
	briefs := read(t, s, func(ctx context.Context, tx store.Tx) ([]store.DeploymentBrief, error) {
		return tx.Deployments().BriefsOfRepository(ctx, w.tenant.ID, w.repo.ID)
	})
	same(t, "briefs", briefs, []store.DeploymentBrief{{ID: w.deployment.ID, Revision: "main", Rendered: true, Pending: true}})

	p.Source.Path, p.Labels, p.Source.Variables, p.Source.Globs = "third", map[string]string{}, map[string]string{}, nil
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.PendingSpecs().Put(ctx, p) })
	p.SpecRevision++
	same(t, "after another edit", getPending(t, s, w), p)
}

func pendingProblems(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	p := withPending(t, s, w)
	p.Reason, p.Problem, p.EditedAt = fleet.ReasonSourceNotRendered, "bad yaml", time.Time{}
	for i, changes := range []int{1, 0} {
		before := last(t, s)
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.PendingSpecs().SetProblem(ctx, p) })
		same(t, "pending spec", getPending(t, s, w), p)
		if got := since(t, s, before); len(got) != changes {
			t.Errorf("writing for the %d. time records %v", i+1, got)
		}
	}
	other := p
	other.SpecRevision++ // which nobody has asked for
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error { return tx.PendingSpecs().SetProblem(ctx, other) })
}

func pendingSpecsComeIntoForce(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error { return tx.Deployments().Promote(ctx, w.deployment) })
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Deployments().SetSourceError(ctx, w.tenant.ID, w.deployment.ID, fleet.ReasonRenderFailed, "bad yaml", at(30))
	})
	p := withPending(t, s, w)
	want := w.deployment.With(p)
	want.SourceRevision, want.Detected, want.Pin = 4, fleet.SourcePlain, fleet.Pin{}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Deployments().Promote(ctx, want) })
	want.PendingSpecRevision, want.SourceSince = 0, time.Time{} // until its render is recorded
	same(t, "deployment", getDeployment(t, s, w), want)
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.PendingSpecs().Get(ctx, w.tenant.ID, w.deployment.ID)
		return err
	})
	same(t, "found by its new path", len(listDeployments(t, s, w, store.DeploymentFilter{Text: "other"})), 1)
}

func pendingSpecsAreWithdrawn(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	withPending(t, s, w)
	remove := func(ctx context.Context, tx store.Tx) error {
		return tx.PendingSpecs().Remove(ctx, w.tenant.ID, w.deployment.ID)
	}
	update(t, s, remove)
	w.deployment.SpecRevision, w.deployment.PendingSpecRevision = w.deployment.SpecRevision+1, 0
	same(t, "deployment", getDeployment(t, s, w), w.deployment)
	before := last(t, s)
	update(t, s, remove) // once more is no mistake
	same(t, "deployment", getDeployment(t, s, w), w.deployment)
	same(t, "changes", since(t, s, before), nil)
}

func pendingSpecsHold(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	repo := fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: w.tenant.ID, URL: "https://git.example/other.git", CreatedAt: at(1)}
	env := fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: w.tenant.ID, Name: "production", CreatedAt: at(1)}
	p := newPending(w, w.deployment)
	p.RepositoryID, p.EnvironmentID = repo.ID, env.ID
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Repositories().Create(ctx, repo), tx.Environments().Create(ctx, env), tx.PendingSpecs().Put(ctx, p))
	})
	deleteBoth := []func(ctx context.Context, tx store.Tx) error{
		func(ctx context.Context, tx store.Tx) error {
			return tx.Repositories().Delete(ctx, w.tenant.ID, repo.ID)
		},
		func(ctx context.Context, tx store.Tx) error {
			return tx.Environments().Delete(ctx, w.tenant.ID, env.ID)
		},
	}
	for _, remove := range deleteBoth {
		refuse(t, s, store.ErrExists, remove)
	}
	inUse := read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Repository, error) {
		return tx.Repositories().ListAllTenants(ctx)
	})
	if len(inUse) != 2 {
		t.Errorf("in use are %v", inUse)
	}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.PendingSpecs().Remove(ctx, w.tenant.ID, w.deployment.ID)
	})
	for _, remove := range deleteBoth {
		update(t, s, remove)
	}
}

func sourceRevisionsAreWritten(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Targets().SetSourceRevision(ctx, w.tenant.ID, w.target.ID, 7)
	})
	want := w.target
	want.Desired.SourceRevision = 7
	same(t, "target", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Target, error) {
		return tx.Targets().Get(ctx, w.tenant.ID, w.target.ID)
	}), want)
	same(t, "changes", since(t, s, before), nil)
}

func pendingSpecsGoWithDeployments(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	withPending(t, s, w)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Targets().Remove(ctx, w.tenant.ID, w.target.ID), tx.Deployments().Remove(ctx, w.tenant.ID, w.deployment.ID))
	})
	left := read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.PendingSpec, error) {
		return tx.PendingSpecs().OfRepository(ctx, w.tenant.ID, w.repo.ID)
	})
	same(t, "pending specs", left, nil)
}

func pendingProblemsAreFailures(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Targets().Remove(ctx, w.tenant.ID, w.target.ID)
	})
	failed := func() int { return len(listDeployments(t, s, w, store.DeploymentFilter{Sync: fleet.SyncFailed})) }
	p := withPending(t, s, w)
	same(t, "failed before it was read", failed(), 0)
	p.Reason, p.Problem = fleet.ReasonSourceUnreadable, "no route to host"
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.PendingSpecs().SetProblem(ctx, p) })
	same(t, "failed", failed(), 1)
}
