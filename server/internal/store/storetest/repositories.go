package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var repositoryTests = map[string]func(*testing.T, store.Store){
	"are unique by URL in their tenant":           repositoriesAreUnique,
	"record only changes":                         repositoryChecks,
	"say up to which commit they were evaluated":  repositoryRefs,
	"are polled while a live deployment uses one": repositoriesInUse,
	"are read with a credential or without":       repositoryCredentials,
	"keep their policy":                           repositoryPolicy,
	"stay while deployments use them":             repositoryDeletion,
}

func repositoriesAreUnique(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	other := fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: w.tenant.ID, URL: "https://git.example/a.git", SpecRevision: 1, CreatedAt: at(1)}
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
	list := func(page store.Page) []fleet.Repository {
		return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Repository, error) {
			return tx.Repositories().List(ctx, w.tenant.ID, store.RepositoryFilter{Page: page})
		})
	}
	same(t, "list", list(store.Page{}), []fleet.Repository{other, w.repo})
	same(t, "first page", list(store.Page{Limit: 1}), []fleet.Repository{other})
	same(t, "second page", list(store.Page{Limit: 1, After: other.URL}), []fleet.Repository{w.repo})
	same(t, "count", read(t, s, func(ctx context.Context, tx store.Tx) (int, error) {
		return tx.Repositories().Count(ctx, w.tenant.ID)
	}), 2)
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
		why     fleet.Reason
		since   time.Time
		changes []store.Change
	}{
		{"the first good look is no news", at(20), "", "", at(20), nil},
		{"it broke", at(30), "no route", "", at(30), []store.Change{record}},
		{"still broken, in the same words", at(40), "no route", "", at(30), nil},
		{"broken differently", at(50), "not a repository", fleet.ReasonNotGit, at(30), []store.Change{record}},
		{"it healed", at(60), "", "", at(60), []store.Change{record}},
	}
	for _, step := range steps {
		before := last(t, s)
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			return tx.Repositories().SetChecked(ctx, w.tenant.ID, w.repo.ID, step.when, step.message, step.why)
		})
		want := w.repo
		want.CheckedAt, want.Error, want.ErrorReason, want.StateSince = step.when, step.message, step.why, step.since
		same(t, step.reason, read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Repository, error) {
			return tx.Repositories().Get(ctx, w.tenant.ID, w.repo.ID)
		}), want)
		same(t, step.reason+": changes", since(t, s, before), step.changes)
	}
}

func repositoryRefs(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	evaluated := func(revision string) store.EvaluatedRef {
		return read(t, s, func(ctx context.Context, tx store.Tx) (store.EvaluatedRef, error) {
			return tx.Repositories().Evaluated(ctx, w.tenant.ID, w.repo.ID, revision)
		})
	}
	set := func(inUse []string, refs ...store.EvaluatedRef) {
		before := last(t, s)
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			return tx.Repositories().SetEvaluated(ctx, w.tenant.ID, w.repo.ID, refs, inUse)
		})
		same(t, "changes", since(t, s, before), []store.Change{{TenantID: w.tenant.ID, Kind: store.ChangeRepository, ID: string(w.repo.ID)}})
	}
	same(t, "before the first", evaluated("main"), store.EvaluatedRef{})
	main := store.EvaluatedRef{Revision: "main", Commit: "c1", Except: []fleet.DeploymentID{w.deployment.ID}}
	branch := store.EvaluatedRef{Commit: "c2"}
	set([]string{"", "main"}, main, branch)
	same(t, "a branch", evaluated("main"), main)
	same(t, "the default branch", evaluated(""), branch)
	main.Commit, main.Except = "c3", nil
	set([]string{"main"}, main)
	same(t, "a newer commit", evaluated("main"), main)
	same(t, "a revision that is no longer in use", evaluated(""), store.EvaluatedRef{})
	set(nil)
	same(t, "no revision in use", evaluated("main"), store.EvaluatedRef{})
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

func repositoryCredentials(t *testing.T, s store.Store) {
	w, other := newWorld(t, s, "a"), newWorld(t, s, "b")
	second := newCredential(w.tenant.ID, "second")
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Credentials().Create(ctx, second) })
	set := func(id fleet.CredentialID) func(context.Context, store.Tx) error {
		return func(ctx context.Context, tx store.Tx) error {
			return tx.Repositories().SetCredential(ctx, w.tenant.ID, w.repo.ID, id)
		}
	}
	of := func(id fleet.CredentialID) []fleet.Repository {
		return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Repository, error) {
			return tx.Repositories().OfCredential(ctx, w.tenant.ID, id)
		})
	}
	want := w.repo
	same(t, "of the first", of(w.credential.ID), []fleet.Repository{want})
	before := last(t, s)
	update(t, s, set(second.ID))
	want.CredentialID, want.SpecRevision = second.ID, 2
	same(t, "of the first", of(w.credential.ID), nil)
	same(t, "of the second", of(second.ID), []fleet.Repository{want})
	refuse(t, s, store.ErrNotFound, set(other.credential.ID))
	refuse(t, s, store.ErrNotFound, set("crd-nowhere"))
	update(t, s, set(""))
	want.CredentialID, want.SpecRevision = "", 3
	same(t, "without one", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Repository, error) {
		return tx.Repositories().Get(ctx, w.tenant.ID, w.repo.ID)
	}), want)
	record := store.Change{TenantID: w.tenant.ID, Kind: store.ChangeRepository, ID: string(w.repo.ID)}
	same(t, "changes", since(t, s, before), []store.Change{record, record})
}

func repositoryDeletion(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	id := w.tenant.ID
	remove := func(ctx context.Context, tx store.Tx) error { return tx.Repositories().Delete(ctx, id, w.repo.ID) }
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Deployments().MarkDeleted(ctx, id, w.deployment.ID, at(50))
	})
	refuse(t, s, store.ErrExists, remove)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Targets().Remove(ctx, id, w.target.ID), tx.Deployments().Remove(ctx, id, w.deployment.ID))
	})
	before := last(t, s)
	update(t, s, remove)
	same(t, "changes", since(t, s, before), []store.Change{{TenantID: id, Kind: store.ChangeRepository, ID: string(w.repo.ID)}})
	refuse(t, s, store.ErrNotFound, remove)
	// Nothing is left of it: the same URL is new.
	again := w.repo
	again.ID = fleet.NewRepositoryID()
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Repositories().Create(ctx, again) })
}

func repositoryPolicy(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	signed := fleet.Repository{
		ID: fleet.NewRepositoryID(), TenantID: w.tenant.ID, URL: "https://git.example/signed.git", Submodules: true, Signers: "ann ssh-ed25519 AAAA",
		SpecRevision: 1, CreatedAt: at(5),
	}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Repositories().Create(ctx, signed) })
	get := func() fleet.Repository {
		return read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Repository, error) {
			return tx.Repositories().Get(ctx, w.tenant.ID, signed.ID)
		})
	}
	same(t, "as it was made", get(), signed)
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Repositories().SetPolicy(ctx, w.tenant.ID, signed.ID, false, "")
	})
	signed.Submodules, signed.Signers, signed.SpecRevision = false, "", 2
	same(t, "after an edit", get(), signed)
	same(t, "changes", since(t, s, before), []store.Change{{TenantID: w.tenant.ID, Kind: store.ChangeRepository, ID: string(signed.ID)}})
}
