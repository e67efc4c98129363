package control_test

import (
	"context"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/seal"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// interrupted is a store in which something happens after the credentials to be encrypted again were read.
type interrupted struct {
	store.Store
	then func()
}

func (s *interrupted) Update(ctx context.Context, fn func(tx store.Tx) error) error {
	return s.Store.Update(ctx, func(tx store.Tx) error { return fn(interruptedTx{tx, s}) })
}

type interruptedTx struct {
	store.Tx
	of *interrupted
}

func (t interruptedTx) Credentials() store.Credentials {
	return interruptedCredentials{t.Tx.Credentials(), t.of}
}

type interruptedCredentials struct {
	store.Credentials
	of *interrupted
}

func (c interruptedCredentials) NotSealedByAllTenants(ctx context.Context, key string, limit int) ([]fleet.Credential, error) {
	out, err := c.Credentials.NotSealedByAllTenants(ctx, key, limit)
	c.of.then()
	return out, err
}

// The key is rotated while a user replaces a secret on a replica without the new key. The old secret must not
// come back, nor may the new one stay encrypted with the old key, which is removed next. Only PostgreSQL lets
// the two overlap.
func TestASecretThatIsReplacedDuringARotationStays(t *testing.T) {
	t.Parallel()
	db := newPostgres(t)
	st := db.open(t)
	defer st.Close()
	lines := map[string]string{}
	for _, id := range []string{"old", "new"} {
		line, err := seal.NewKey(id)
		ok(t, err)
		lines[id] = line
	}
	with := func(st store.Store, ids ...string) *control.Service {
		t.Helper()
		var file string
		for _, id := range ids {
			file += lines[id]
		}
		ring, err := seal.Parse([]byte(file))
		ok(t, err)
		svc, err := control.New(control.Config{Key: []byte(strings.Repeat("k", 32)), Sealer: ring, Shared: true}, st, noGit{})
		ok(t, err)
		return svc
	}
	before := with(st, "old", "new")
	_, err := before.Bootstrap(t.Context(), false)
	ok(t, err)
	_, err = before.CreateCredential(t.Context(), root, "default", control.CreateCredential{Name: "git", Kind: fleet.CredentialHTTPS, Secret: "first"})
	ok(t, err)
	times := 0
	edited := &interrupted{Store: st, then: func() {
		if times++; times > 1 {
			return
		}
		_, err := before.UpdateCredential(t.Context(), root, "default", "git", control.UpdateCredential{Secret: ptr("second")}, control.Match{})
		ok(t, err)
	}}
	n, err := with(edited, "new", "old").ResealCredentials(t.Context())
	ok(t, err)
	if n != 1 {
		t.Errorf("%d were sealed, and there is one", n)
	}
	// With the new key alone, the same secret again is no change.
	last := fetchLast(t, st)
	_, err = with(st, "new").UpdateCredential(t.Context(), root, "default", "git", control.UpdateCredential{Secret: ptr("second")}, control.Match{})
	ok(t, err)
	if fetchLast(t, st) != last {
		t.Error("the secret is not the new one under the new key")
	}
}
