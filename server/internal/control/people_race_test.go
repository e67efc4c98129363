package control_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// overtaking is a store in which something happens while a person is being deleted: after the sessions were
// ended.
type overtaking struct {
	store.Store
	then func()
}

func (s *overtaking) Update(ctx context.Context, fn func(tx store.Tx) error) error {
	return s.Store.Update(ctx, func(tx store.Tx) error { return fn(overtakingTx{tx, s}) })
}

type overtakingTx struct {
	store.Tx
	of *overtaking
}

func (t overtakingTx) Tokens() store.Tokens { return overtakingTokens{t.Tx.Tokens(), t.of} }

type overtakingTokens struct {
	store.Tokens
	of *overtaking
}

func (t overtakingTokens) RevokeSessions(ctx context.Context, person string, at time.Time) (int, error) {
	n, err := t.Tokens.RevokeSessions(ctx, person, at)
	t.of.then()
	return n, err
}

// A person logs in while an admin deletes them. A session must not outlive the binding of its name: the next
// person with the name would be treated as the same. Only PostgreSQL lets the two overlap.
func TestALoginWhileAPersonIsForgottenLeavesNoSessionWithoutABinding(t *testing.T) {
	t.Parallel()
	db := newPostgres(t)
	st := db.open(t)
	defer st.Close()
	service := func(st store.Store) *control.Service {
		t.Helper()
		s, err := control.New(control.Config{Key: []byte(strings.Repeat("k", 32)), Shared: true}, st, noGit{})
		ok(t, err)
		return s
	}
	plain := service(st)
	_, err := plain.Bootstrap(t.Context(), false)
	ok(t, err)
	login := control.Login{Issuer: "https://id.example.com", Subject: "1", Name: "alice"}
	_, _, err = plain.StartSession(t.Context(), login)
	ok(t, err)

	type outcome struct {
		secret string
		err    error
	}
	logged := make(chan outcome, 1)
	slow := &overtaking{Store: st, then: func() {
		go func() {
			secret, _, err := plain.StartSession(context.WithoutCancel(t.Context()), login)
			logged <- outcome{secret, err}
		}()
		// Either it is done, or it waits for this transaction.
		select {
		case got := <-logged:
			logged <- got
		case <-time.After(500 * time.Millisecond):
		}
	}}
	ok(t, service(slow).ForgetPerson(t.Context(), root, "alice"))
	got := <-logged
	ok(t, got.err) // the name was free by then
	if _, err := plain.Person(t.Context(), root, "alice"); err != nil {
		t.Errorf("the name of an open session is not bound: %v", err)
	}
	if _, err := plain.Authenticate(t.Context(), got.secret); err != nil {
		t.Errorf("the session of who has logged in again: %v", err)
	}
	_, _, err = plain.StartSession(t.Context(), control.Login{Issuer: login.Issuer, Subject: "2", Name: "alice"})
	wantInvalid(t, err, "name")
}

func TestANameHasOnlyCharactersThatCanBePrinted(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	for reason, name := range map[string]string{
		"control": "ali\x07ce", "line break": "alice\n", "zero width": "ali\u200bce", "right to left": "alice\u202egnp", "soft hyphen": "al\u00adice",
		"not breaking": "alice\u00a0smith", "line separator": "alice\u2028", "private use": "alice\ue000", "no UTF-8": "alice\xff\ufeff",
	} {
		_, _, err := d.StartSession(d.ctx, control.Login{Issuer: "https://id.example.com", Subject: "1", Name: name})
		wantInvalid(t, err, "name")
		if t.Failed() {
			t.Fatal(reason)
		}
	}
	for _, name := range []string{"alice", "Alice Smith", "élise@example.com", "李明"} {
		d.login(t, name, name)
	}
}
