package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var repositoryTests = map[string]func(*testing.T, store.Store){
	"are unique by URL in their tenant":           repositoriesAreUnique,
	"tell others only of news":                    repositoryChecks,
	"are polled while a live deployment uses one": repositoriesInUse,
}

func repositoriesAreUnique(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	other := fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: w.tenant.ID, URL: "https://git.example/a.git", CreatedAt: at(1)}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Repositories().Create(ctx, other) })
	refuse(t, s, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		again := other
		again.ID = fleet.NewRepositoryID()
		return tx.Repositories().Create(ctx, again)
	})
	finders := map[string]func(context.Context, store.Tx) (fleet.Repository, error){
		"Get": func(ctx context.Context, tx store.Tx) (fleet.Repository, error) {
			return tx.Repositories().Get(ctx, w.tenant.ID, w.repo.ID)
		},
		"GetAllTenants": func(ctx context.Context, tx store.Tx) (fleet.Repository, error) {
			return tx.Repositories().GetAllTenants(ctx, w.repo.ID)
		},
		"ByURL": func(ctx context.Context, tx store.Tx) (fleet.Repository, error) {
			return tx.Repositories().ByURL(ctx, w.tenant.ID, w.repo.URL)
		},
	}
	for name, find := range finders {
		same(t, name, read(t, s, find), w.repo)
	}
	same(t, "list", read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Repository, error) {
		return tx.Repositories().List(ctx, w.tenant.ID)
	}), []fleet.Repository{other, w.repo})
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Repository, error) {
		return tx.Repositories().GetAllTenants(ctx, fleet.NewRepositoryID())
	})
}

func repositoryChecks(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	record := store.Change{TenantID: w.tenant.ID, Kind: store.ChangeRepository, ID: string(w.repo.ID)}
	steps := []struct {
		reason  string
		when    time.Time
		message string
		changes []store.Change
	}{
		{"the first good look is no news", at(20), "", nil},
		{"it broke", at(30), "no route", []store.Change{record}},
		{"still broken, in the same words", at(40), "no route", nil},
		{"broken differently", at(50), "not a repository", []store.Change{record}},
		{"it healed", at(60), "", []store.Change{record}},
	}
	for _, step := range steps {
		before := last(t, s)
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			return tx.Repositories().SetChecked(ctx, w.tenant.ID, w.repo.ID, step.when, step.message)
		})
		want := w.repo
		want.CheckedAt, want.Error = step.when, step.message
		same(t, step.reason, read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Repository, error) {
			return tx.Repositories().Get(ctx, w.tenant.ID, w.repo.ID)
		}), want)
		same(t, step.reason+": changes", since(t, s, before), step.changes)
	}
}

func repositoriesInUse(t *testing.T, s store.Store) {
	a, b := newWorld(t, s, "a"), newWorld(t, s, "b")
	idle := fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: a.tenant.ID, URL: "https://git.example/idle.git", CreatedAt: at(1)}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Repositories().Create(ctx, idle) })
	used := func() map[fleet.RepositoryID]bool {
		out := map[fleet.RepositoryID]bool{}
		for _, r := range read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Repository, error) {
			return tx.Repositories().ListAllTenants(ctx)
		}) {
			out[r.ID] = true
		}
		return out
	}
	same(t, "in use", used(), map[fleet.RepositoryID]bool{a.repo.ID: true, b.repo.ID: true})
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Deployments().MarkDeleted(ctx, a.tenant.ID, a.deployment.ID, at(50))
	})
	same(t, "in use after a deletion", used(), map[fleet.RepositoryID]bool{b.repo.ID: true})
}
