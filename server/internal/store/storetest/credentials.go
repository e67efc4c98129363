package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var credentialTests = map[string]func(*testing.T, store.Store){
	"are kept sealed and found by name": credentialsAreKept,
	"are edited":                        credentialsAreEdited,
	"are sealed again":                  credentialsAreResealed,
	"stay while repositories use them":  credentialDeletion,
}

func getCredential(t *testing.T, s store.Store, c fleet.Credential) fleet.Credential {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Credential, error) {
		return tx.Credentials().Get(ctx, c.TenantID, c.ID)
	})
}

func credentialsAreKept(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	key := newCredential(w.tenant.ID, "a-key")
	key.Kind = fleet.CredentialSSH
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Credentials().Create(ctx, key) })
	same(t, "changes", since(t, s, before), []store.Change{{TenantID: w.tenant.ID, Kind: store.ChangeCredential, ID: string(key.ID)}})
	same(t, "by id", getCredential(t, s, key), key)
	same(t, "by name", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Credential, error) {
		return tx.Credentials().ByName(ctx, w.tenant.ID, "git")
	}), w.credential)
	list := func(page store.Page) []fleet.Credential {
		return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Credential, error) {
			return tx.Credentials().List(ctx, w.tenant.ID, page)
		})
	}
	same(t, "list", list(store.Page{}), []fleet.Credential{key, w.credential})
	same(t, "second page", list(store.Page{After: "a-key", Limit: 1}), []fleet.Credential{w.credential})
	refuse(t, s, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.Credentials().Create(ctx, newCredential(w.tenant.ID, "git"))
	})
}

func credentialsAreEdited(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	before := last(t, s)
	want := w.credential
	want.Username, want.KnownHosts, want.UpdatedAt = "other", "c", at(40)
	want.Sealed = fleet.Sealed{KeyID: "k2", Key: []byte("x"), Data: []byte("y")}
	edited := want
	edited.Name, edited.Kind = "renamed", fleet.CredentialSSH // which an edit does not do
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Credentials().Update(ctx, edited) })
	want.SpecRevision = 2
	same(t, "credential", getCredential(t, s, want), want)
	same(t, "changes", since(t, s, before), []store.Change{{TenantID: w.tenant.ID, Kind: store.ChangeCredential, ID: string(want.ID)}})
}

func credentialsAreResealed(t *testing.T, s store.Store) {
	a, b := newWorld(t, s, "a"), newWorld(t, s, "b")
	before := last(t, s)
	left := func(key string, limit int) int {
		return len(read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Credential, error) {
			return tx.Credentials().NotSealedByAllTenants(ctx, key, limit)
		}))
	}
	same(t, "not sealed by the key in use", left("k1", 0), 0)
	same(t, "not sealed by a later key", left("k2", 0), 2)
	same(t, "not sealed by an earlier key", left("k0", 0), 2)
	same(t, "some of them", left("k2", 1), 1)
	want := a.credential
	want.Sealed = fleet.Sealed{KeyID: "k2", Key: []byte("new"), Data: []byte("new")}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		was, err := tx.Credentials().Get(ctx, a.tenant.ID, a.credential.ID)
		if err != nil {
			return err
		}
		stale := was
		stale.Sealed.Data = []byte("an older secret")
		if sealed, err := tx.Credentials().Reseal(ctx, stale, want.Sealed); err != nil || sealed {
			return fmt.Errorf("a replaced secret was restored: %v, %w", sealed, err)
		}
		if sealed, err := tx.Credentials().Reseal(ctx, was, want.Sealed); err != nil || !sealed {
			return fmt.Errorf("resealing: %v, %w", sealed, err)
		}
		return nil
	})
	same(t, "credential", getCredential(t, s, want), want)
	same(t, "the other tenant's", getCredential(t, s, b.credential), b.credential)
	same(t, "not sealed by the later key", left("k2", 0), 1)
	same(t, "changes", since(t, s, before), nil)
}

func credentialDeletion(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	remove := func(ctx context.Context, tx store.Tx) error {
		return tx.Credentials().Delete(ctx, w.tenant.ID, w.credential.ID)
	}
	refuse(t, s, store.ErrExists, remove)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Repositories().SetCredential(ctx, w.tenant.ID, w.repo.ID, "")
	})
	before := last(t, s)
	update(t, s, remove)
	same(t, "changes", since(t, s, before), []store.Change{{TenantID: w.tenant.ID, Kind: store.ChangeCredential, ID: string(w.credential.ID)}})
	refuse(t, s, store.ErrNotFound, remove)
}
