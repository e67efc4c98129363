package link

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fakeTokens stores a token in memory. fresh is the argument of the last Read.
type fakeTokens struct {
	token string
	err   error
	fresh bool
}

func (p *fakeTokens) Read(_ context.Context, fresh bool) (string, error) {
	p.fresh = fresh
	return p.token, p.err
}
func (p *fakeTokens) Store(context.Context, string, string) error { return nil }
func (p *fakeTokens) String() string                              { return "memory" }

// covers: C7
func TestTokenSourceFallsBackToAcceptedTokens(t *testing.T) {
	t.Parallel()
	refused := &beforeWelcomeError{status.Error(codes.Unauthenticated, "no")}
	lost := errors.New("lost")
	stored := &fakeTokens{token: "a"}
	source := tokenSource{stored: stored}
	steps := []struct {
		reason   string
		change   func()
		want     string
		fresh    bool
		welcomed bool
		err      error
	}{
		{"the first read is fresh", nil, "a", true, true, lost},
		{"later reads are not", nil, "a", false, true, lost},
		{"a new token is used first", func() { stored.token = "b" }, "b", false, false, refused},
		{"and the previous one when it is refused", nil, "a", true, true, lost},
		{"the refused one is not tried each time", nil, "a", true, true, refused},
		{"all are tried in turn while none is accepted", nil, "b", true, false, refused},
		{"all are tried in turn while none is accepted", nil, "a", true, false, refused},
		{"a newer token is used first", func() { stored.token = "c" }, "c", true, true, lost},
		{"and another one", func() { stored.token = "d" }, "d", true, true, lost},
		{"two accepted tokens are remembered", nil, "d", true, false, refused},
		{"two accepted tokens are remembered", nil, "c", true, false, refused},
		{"and not more", nil, "d", true, true, lost},
		{"even if one is refused", nil, "d", true, true, refused},
		{"a newer token is next", func() { stored.token = "e" }, "e", true, false, refused},
		{"and then an accepted one", nil, "d", true, true, lost},
		{"a failed read is not a problem", func() { stored.err = errors.New("gone") }, "d", true, true, lost},
	}
	for i, step := range steps {
		if step.change != nil {
			step.change()
		}
		got, err := source.next(t.Context())
		if err != nil || got != step.want || stored.fresh != step.fresh {
			t.Fatalf("step %d: next() = %q, %v (fresh %t), want %q (fresh %t): %s", i, got, err, stored.fresh, step.want, step.fresh, step.reason)
		}
		source.used(got, step.welcomed, step.err)
	}
}

// A replica does not wait when the server refuses a token that another replica has replaced.
//
// covers: C7
func TestReplacedTokenIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	refused := status.Error(codes.Unauthenticated, "no")
	for _, c := range []struct {
		reason string
		err    error
		now    string
		want   bool
	}{
		{"the stored token has changed", refused, "b", true},
		{"it was refused before Welcome", &beforeWelcomeError{refused}, "b", true},
		{"the stored token is the same", refused, "a", false},
		{"the token is not the reason", &beforeWelcomeError{status.Error(codes.Unavailable, "no")}, "b", false},
	} {
		stored := &fakeTokens{token: "a"}
		client := &Client{tokens: tokenSource{stored: stored}}
		if token, err := client.tokens.next(t.Context()); token != "a" || err != nil {
			t.Fatal(token, err)
		}
		stored.token = c.now
		var b backoff
		b.attempts.Skip(6)
		delay := client.delay(t.Context(), &b, c.err, time.Second)
		if at := delay == 0 && b.attempts.Attempts() == 0; at != c.want {
			t.Errorf("%s: the delay is %v, and the next at most %v", c.reason, delay, b.attempts.Next(backoffFirst, backoffMax))
		}
	}
}

// covers: C7
func TestTokenFileIsReplacedAtomically(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, alias := filepath.Join(dir, "token"), filepath.Join(t.TempDir(), "alias")
	if err := os.WriteFile(file, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, alias); err != nil {
		t.Fatal(err)
	}
	if err := TokenFile(alias).Store(t.Context(), "old", "new"); err != nil {
		t.Fatal(err)
	}
	if got, err := TokenFile(file).Read(t.Context(), false); got != "new" || err != nil {
		t.Errorf("the file contains %q, %v", got, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("its mode is %v, %v, want it unchanged", info.Mode(), err)
	}
	if err := TokenFile(alias).Store(t.Context(), "old", "revoked"); !errors.Is(err, ErrReplaced) {
		t.Errorf("Store() = %v, want ErrReplaced", err)
	}
	if got, err := TokenFile(file).Read(t.Context(), false); got != "new" || err != nil {
		t.Errorf("the file contains %q, %v, want it unchanged", got, err)
	}
	if _, err := os.Readlink(alias); err != nil {
		t.Errorf("the link was replaced: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder contains %v, %v, want only the token", entries, err)
	}
}

// covers: C7
func TestReadOnlyTokenFileIsReported(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("old"), 0o400); err != nil {
		t.Fatal(err)
	}
	err := TokenFile(file).Store(t.Context(), "old", "new-secret")
	if err == nil || !strings.Contains(err.Error(), "read-only") || strings.Contains(err.Error(), "new-secret") {
		t.Errorf("Store() = %v, want the reason without the token", err)
	}
	if got, err := TokenFile(file).Read(t.Context(), false); got != "old" || err != nil {
		t.Errorf("the file contains %q, %v, want the old token", got, err)
	}
}
