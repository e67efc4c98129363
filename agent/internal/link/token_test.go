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

// purse is where a token lies; fresh tells how it was last read.
type purse struct {
	token string
	err   error
	fresh bool
}

func (p *purse) Read(_ context.Context, fresh bool) (string, error) {
	p.fresh = fresh
	return p.token, p.err
}
func (p *purse) Store(context.Context, string, string) error { return nil }
func (p *purse) String() string                              { return "purse" }

// covers: C7
func TestWalletFallsBackToWhatHasWorked(t *testing.T) {
	t.Parallel()
	refused := &unwelcome{status.Error(codes.Unauthenticated, "no")}
	lost := errors.New("lost")
	kept := &purse{token: "a"}
	w := wallet{kept: kept}
	steps := []struct {
		reason   string
		change   func()
		want     string
		fresh    bool
		welcomed bool
		err      error
	}{
		{"the first is read where it is kept", nil, "a", true, true, lost},
		{"then what is mounted is enough", nil, "a", false, true, lost},
		{"the newest comes first", func() { kept.token = "b" }, "b", false, false, refused},
		{"and the one before it when it is refused", nil, "a", true, true, lost},
		{"which is not asked for each time", nil, "a", true, true, refused},
		{"each has its turn when none is taken", nil, "b", true, false, refused},
		{"each has its turn when none is taken", nil, "a", true, false, refused},
		{"something newer comes first again", func() { kept.token = "c" }, "c", true, true, lost},
		{"and works", func() { kept.token = "d" }, "d", true, true, lost},
		{"two that have worked are remembered", nil, "d", true, false, refused},
		{"two that have worked are remembered", nil, "c", true, false, refused},
		{"and no more", nil, "d", true, true, lost},
		{"whichever of them is refused", nil, "d", true, true, refused},
		{"something newer is next", func() { kept.token = "e" }, "e", true, false, refused},
		{"and then what has worked", nil, "d", true, true, lost},
		{"what cannot be read is not missed", func() { kept.err = errors.New("gone") }, "d", true, true, lost},
	}
	for i, step := range steps {
		if step.change != nil {
			step.change()
		}
		got, err := w.next(t.Context())
		if err != nil || got != step.want || kept.fresh != step.fresh {
			t.Fatalf("step %d: next() = %q, %v (fresh %t), want %q (fresh %t): %s", i, got, err, kept.fresh, step.want, step.fresh, step.reason)
		}
		w.ended(got, step.welcomed, step.err)
	}
}

// A replica whose token was revoked because another one has replaced it, perhaps more than once, has no reason to wait.
//
// covers: C7
func TestTokenThatWasReplacedIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	refused := status.Error(codes.Unauthenticated, "no")
	for _, c := range []struct {
		reason string
		err    error
		now    string
		want   bool
	}{
		{"another token is there", refused, "b", true},
		{"it was refused before the Welcome", &unwelcome{refused}, "b", true},
		{"there is no other", refused, "a", false},
		{"it is not because of the token", &unwelcome{status.Error(codes.Unavailable, "no")}, "b", false},
	} {
		kept := &purse{token: "a"}
		client := &Client{wallet: wallet{kept: kept}}
		if token, err := client.wallet.next(t.Context()); token != "a" || err != nil {
			t.Fatal(token, err)
		}
		kept.token = c.now
		var b backoff
		b.attempts.Skip(6)
		delay := client.delay(t.Context(), &b, c.err, time.Second)
		if at := delay == 0 && b.attempts.Attempts() == 0; at != c.want {
			t.Errorf("%s: comes back in %v, and after that in up to %v", c.reason, delay, b.attempts.Next(backoffStart, backoffCap))
		}
	}
}

// covers: C7
func TestTokenFileIsReplacedInOneStep(t *testing.T) {
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
		t.Errorf("the file holds %q, %v", got, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("its mode is %v, %v, want it kept", info.Mode(), err)
	}
	if err := TokenFile(alias).Store(t.Context(), "old", "dead"); !errors.Is(err, ErrReplaced) {
		t.Errorf("Store() = %v, want that another token is kept", err)
	}
	if got, err := TokenFile(file).Read(t.Context(), false); got != "new" || err != nil {
		t.Errorf("the file holds %q, %v, want what was kept before", got, err)
	}
	if _, err := os.Readlink(alias); err != nil {
		t.Errorf("the link was replaced: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v, want just the token", entries, err)
	}
}

// covers: C7
func TestTokenFileThatCannotBeReplacedSaysSo(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("old"), 0o400); err != nil {
		t.Fatal(err)
	}
	err := TokenFile(file).Store(t.Context(), "old", "new-secret")
	if err == nil || !strings.Contains(err.Error(), "read-only") || strings.Contains(err.Error(), "new-secret") {
		t.Errorf("Store() = %v, want why not, without the token", err)
	}
	if got, err := TokenFile(file).Read(t.Context(), false); got != "old" || err != nil {
		t.Errorf("the file holds %q, %v, want the old token", got, err)
	}
}
