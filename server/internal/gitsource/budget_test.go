package gitsource_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// whatAsks has everything of a large repository with submodules that asks its host, when it is called.
func whatAsks(t *testing.T, m *gitsource.Manager, server *gitserver.Server, repo *gitserver.Repo) map[string]func(context.Context) error {
	t.Helper()
	lib := commit(t, createRepo(t, server, "lib"), map[string]string{"l.yaml": "lib"})
	more := commit(t, createRepo(t, server, "more"), map[string]string{"m.yaml": "more"})
	old := commit(t, repo, map[string]string{"x": "old"})
	files := large(2)
	files[".gitmodules"] = gitmodules(map[string]string{"first": server.URL("lib"), "second": server.URL("more")})
	files["first"], files["second"] = gitserver.Gitlink(lib), gitserver.Gitlink(more)
	tip := commit(t, repo, files)
	for _, ref := range []string{"refs/tags/v1.0.0", "refs/heads/other"} {
		run(t, "--git-dir="+server.Dir("app"), "update-ref", ref, tip)
	}
	access := gitsource.Access{URL: server.URL("app"), Submodules: true}
	fetch := func(revision string) func(context.Context) error {
		return func(ctx context.Context) error {
			refs, err := m.Fetch(ctx, access, []string{revision})
			return errors.Join(err, refs[revision].Err)
		}
	}
	check(t, fetch("main")(t.Context()))
	tree, err := m.Tree(t.Context(), access, tip)
	check(t, err)
	_, err = tree.List(t.Context(), "first") // which says where the second one is
	check(t, err)
	entries, err := tree.List(t.Context(), "apps/0")
	check(t, err)
	read := func(ctx context.Context, e filetree.Entry) error { _, err := tree.Read(ctx, e, 1<<20); return err }
	return map[string]func(context.Context) error{
		"a branch":              fetch("main"),
		"an older commit":       fetch(old),
		"a range of versions":   fetch("semver:^1"),
		"a file of a large one": func(ctx context.Context) error { return read(ctx, entries[0]) },
		"a submodule":           func(ctx context.Context) error { _, err := tree.List(ctx, "second"); return err },
		"a push": func(ctx context.Context) error {
			_, err := m.Commit(ctx, access, edit(tip, map[string]string{"x": "y"}))
			return err
		},
		"a branch that is new here": fetch("other"),
	}
}

// A host that asks to be left alone is, by everything that asks hosts, and no other is.
func TestWhateverAsksAHostIsWithinItsBudget(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	other, otherRepo := startServer(t)
	commit(t, otherRepo, map[string]string{"a": "1"})
	m := managerWith(t, gitsource.Config{Allow: []string{"http"}, MaxWholeBytes: 100 << 10, Addresses: &egress.Policy{AllowLoopback: true}})
	asks := whatAsks(t, m, server, repo)
	server.SetFailure(http.StatusTooManyRequests, time.Hour)
	if err := asks["a branch"](t.Context()); err == nil {
		t.Fatal("the host did not fail")
	}
	server.SetFailure(0, 0)
	before := server.Requests()
	for what, ask := range asks {
		var remote *gitsource.RemoteError
		if err := ask(t.Context()); !errors.As(err, &remote) || remote.RetryAfter < 59*time.Minute {
			t.Errorf("%s: got %v, want when the host may be asked again", what, err)
		}
		if n := server.Requests() - before; n != 0 {
			t.Errorf("%s: the host was asked %d times", what, n)
		}
	}
	fetchOne(t, m, other.URL("app"), "main")
	if _, err := m.Fetch(t.Context(), gitsource.Access{Owner: "another", URL: server.URL("app")}, []string{"main"}); err != nil {
		t.Errorf("another owner: %v", err)
	}
}

// Invariant 12: a host hangs, and others are asked; who waits for it can give up.
func TestAHostThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	other, otherRepo := startServer(t)
	commit(t, otherRepo, map[string]string{"a": "1"})
	m := managerWith(t, gitsource.Config{
		Allow: []string{"http"}, AtOnce: 8, MaxWholeBytes: 100 << 10, Addresses: &egress.Policy{AllowLoopback: true},
	})
	asks := whatAsks(t, m, server, repo)
	server.SetDelay(time.Hour)
	before := server.Requests()
	hanging, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			_, err := m.Fetch(hanging, gitsource.Access{URL: server.URL(fmt.Sprint("hangs-", i))}, []string{"main"})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("a fetch that was given up: %v", err)
			}
		})
	}
	testkit.Eventually(t, 30*time.Second, func(context.Context) error {
		if server.Requests() == before {
			return errors.New("nobody asks")
		}
		return nil
	})
	for what, ask := range asks {
		ctx, end := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if ask(ctx) == nil {
			t.Errorf("%s did not wait for its turn", what)
		}
		end()
	}
	fetchOne(t, m, other.URL("app"), "main")
	if n := server.Requests() - before; n != 1 {
		t.Errorf("one owner asked the host that hangs %d times at once, want once", n)
	}
	cancel()
	all.Wait()
	server.SetDelay(0)
	for what, ask := range asks {
		if err := ask(t.Context()); err != nil {
			t.Errorf("%s, when the host is back: %v", what, err)
		}
	}
}
