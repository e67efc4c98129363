package control_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/seal"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// unreadable is a store that cannot read credentials.
type unreadable struct{ store.Store }

var errRead = errors.New("database: the read failed")

func (s unreadable) View(ctx context.Context, fn func(store.Tx) error) error {
	return s.Store.View(ctx, func(tx store.Tx) error { return fn(unreadableTx{tx}) })
}

type unreadableTx struct{ store.Tx }

func (t unreadableTx) Credentials() store.Credentials {
	return unreadableCredentials{t.Tx.Credentials()}
}

type unreadableCredentials struct{ store.Credentials }

func (unreadableCredentials) Get(context.Context, fleet.TenantID, fleet.CredentialID) (fleet.Credential, error) {
	return fleet.Credential{}, errRead
}

// An error of the database is not a mistake in the credential: the check fails and is repeated. A credential that cannot be
// decrypted is reported, because a repetition does not help.
// covers: K5
func TestCheckOfARepositoryTellsErrorsApart(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	_, err := d.CreateCredential(d.ctx, root, "default", control.CreateCredential{Name: "git", Kind: fleet.CredentialHTTPS, Username: "robot", Secret: "password"})
	ok(t, err)
	repo, err := d.CreateRepository(d.ctx, root, "default", control.CreateRepository{URL: "https://git.example.com/app.git", Credential: "git"})
	ok(t, err)
	service := func(st store.Store) *control.Service {
		key, err := seal.NewKey("another")
		ok(t, err)
		keys, err := seal.Parse([]byte(key))
		ok(t, err)
		s, err := control.New(control.Config{Key: []byte(strings.Repeat("k", 32)), Sealer: keys, Version: "test"}, st, noGit{})
		ok(t, err)
		return s
	}
	if cause, err := service(unreadable{d.store}).CheckRepository(d.ctx, root, "default", repo.ID); !errors.Is(err, errRead) || !cause.IsZero() {
		t.Errorf("an error of the database gives %+v, %v", cause, err)
	}
	if cause, err := service(d.store).CheckRepository(d.ctx, root, "default", repo.ID); err != nil || cause.Reason != fleet.ReasonCredentialUnusable {
		t.Errorf("a credential of another key gives %+v, %v", cause, err)
	}
}
