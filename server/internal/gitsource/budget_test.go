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

// hostRequests returns every operation that sends requests to a host, for a large repository with submodules.
func hostRequests(t *testing.T, m *gitsource.Manager, server *gitserver.Server, repo *gitserver.Repo) map[string]func(context.Context) error {
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
	_, err = tree.List(t.Context(), "first") // it contains the URL of the second one
	check(t, err)
	entries, err := tree.List(t.Context(), "apps/0")
	check(t, err)
	read := func(ctx context.Context, e filetree.Entry) error { _, err := tree.Read(ctx, e, 1<<20); return err }
	return map[string]func(context.Context) error{
		"a branch":                     fetch("main"),
		"an older commit":              fetch(old),
		"a range of versions":          fetch("semver:^1"),
		"a file of a large repository": func(ctx context.Context) error { return read(ctx, entries[0]) },
		"a submodule":                  func(ctx context.Context) error { _, err := tree.List(ctx, "second"); return err },
		"a push": func(ctx context.Context) error {
			_, err := m.Commit(ctx, access, edit(tip, map[string]string{"x": "y"}))
			return err
		},
		"a new branch": fetch("other"),
	}
}

// No operation sends a request to a host that asks clients to wait. Other hosts are not affected.
func TestEveryRequestUsesTheBudgetOfItsHost(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	other, otherRepo := startServer(t)
	commit(t, otherRepo, map[string]string{"a": "1"})
	m := managerWith(t, gitsource.Config{Allow: []string{"http"}, MaxWholeBytes: 100 << 10, Addresses: &egress.Policy{AllowLoopback: true}})
	requests := hostRequests(t, m, server, repo)
	server.SetFailure(http.StatusTooManyRequests, time.Hour)
	if err := requests["a branch"](t.Context()); err == nil {
		t.Fatal("the request to the host succeeded")
	}
	server.SetFailure(0, 0)
	before := server.Requests()
	for what, ask := range requests {
		var remote *gitsource.RemoteError
		if err := ask(t.Context()); !errors.As(err, &remote) || remote.RetryAfter < 59*time.Minute {
			t.Errorf("%s: got %v, want an error with RetryAfter", what, err)
		}
		if n := server.Requests() - before; n != 0 {
			t.Errorf("%s: the host received %d requests, want none", what, n)
		}
	}
	fetchOne(t, m, other.URL("app"), "main")
	if _, err := m.Fetch(t.Context(), gitsource.Access{Owner: "another", URL: server.URL("app")}, []string{"main"}); err != nil {
		t.Errorf("another owner: %v", err)
	}
}

// Invariant 12: a host that does not respond does not delay others. Callers that wait for it can cancel.
func TestUnresponsiveHostDelaysNoOther(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	other, otherRepo := startServer(t)
	commit(t, otherRepo, map[string]string{"a": "1"})
	m := managerWith(t, gitsource.Config{
		Allow: []string{"http"}, Concurrency: 8, MaxWholeBytes: 100 << 10, Addresses: &egress.Policy{AllowLoopback: true},
	})
	requests := hostRequests(t, m, server, repo)
	server.SetDelay(time.Hour)
	before := server.Requests()
	hanging, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			_, err := m.Fetch(hanging, gitsource.Access{URL: server.URL(fmt.Sprint("hangs-", i))}, []string{"main"})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("a canceled fetch returned %v", err)
			}
		})
	}
	testkit.Eventually(t, 30*time.Second, func(context.Context) error {
		if server.Requests() == before {
			return errors.New("no request yet")
		}
		return nil
	})
	for what, ask := range requests {
		ctx, end := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if ask(ctx) == nil {
			t.Errorf("%s did not wait for a slot", what)
		}
		end()
	}
	fetchOne(t, m, other.URL("app"), "main")
	if n := server.Requests() - before; n != 1 {
		t.Errorf("one owner has %d concurrent requests to the host that does not respond, want one", n)
	}
	cancel()
	all.Wait()
	server.SetDelay(0)
	for what, ask := range requests {
		if err := ask(t.Context()); err != nil {
			t.Errorf("%s, after the host responds again: %v", what, err)
		}
	}
}
