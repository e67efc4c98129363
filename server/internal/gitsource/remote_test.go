package gitsource_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// covers: G4 (a change of the default branch is followed)
func TestChangeOfTheDefaultBranchIsFollowed(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	m := newManager(t)
	url := server.URL("app")
	old := commit(t, repo, map[string]string{"a": "main"})
	check(t, repo.Switch(t.Context(), "trunk"))
	trunk := commit(t, repo, map[string]string{"a": "trunk"})
	if got := fetchOne(t, m, url, ""); got != old {
		t.Fatalf("the default branch is at %s, want %s", got, old)
	}
	run(t, "--git-dir="+server.Dir("app"), "symbolic-ref", "HEAD", "refs/heads/trunk")
	if got := fetchOne(t, m, url, ""); got != trunk {
		t.Errorf("after the change the default branch is at %s, want %s", got, trunk)
	}
	check(t, repo.DeleteRemote(t.Context(), "refs/heads/main"))
	refs, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{"", "main"})
	check(t, err)
	var removed *gitsource.RefNotFoundError
	if refs[""].Commit != trunk || !errors.As(refs["main"].Err, &removed) {
		t.Errorf("after the old branch was deleted: %+v", refs)
	}
	pushed, err := m.Commit(t.Context(), gitsource.Access{URL: url}, edit(trunk, map[string]string{"a": "pushed"}))
	if err != nil || pushed.Branch != "trunk" {
		t.Errorf("a commit to the default branch: %+v, %v", pushed, err)
	}
}

// A merged commit may be older than the oldest commit in the mirror, and a force push may have no common history
// with it.
func TestUnrelatedHistoriesAreFollowed(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, m *gitsource.Manager, url string, repo *gitserver.Repo) {
		commit(t, repo, map[string]string{"a": "1", "dir/b": "b"})
		check(t, repo.Switch(t.Context(), "side"))
		side := commit(t, repo, map[string]string{"side": "s"})
		check(t, repo.Switch(t.Context(), "main"))
		for _, content := range []string{"2", "3"} {
			commit(t, repo, map[string]string{"a": content})
		}
		tip := fetchOne(t, m, url, "main")
		merged := merge(t, repo, url, tip, side)
		if got := fetchOne(t, m, url, "main"); got != merged {
			t.Fatalf("got %s, want the merge %s", got, merged)
		}
		if got := readFile(t, m, url, merged, "dir", "b"); got != "b" {
			t.Errorf("the merge has %q", got)
		}
		if got := fetchOne(t, m, url, "side"); got != side || readFile(t, m, url, side, ".", "side") != "s" {
			t.Errorf("the side branch is %s, want %s", got, side)
		}
		check(t, repo.Drop(t.Context(), "main"))
		other, err := repo.Commit(t.Context(), map[string]string{"x": "another root"}, "another root")
		check(t, err)
		check(t, repo.ForcePush(t.Context()))
		if got := fetchOne(t, m, url, "main"); got != other || readFile(t, m, url, other, ".", "x") != "another root" {
			t.Errorf("after a force push of another history: %s, want %s", got, other)
		}
	})
}

// merge creates a merge commit with the files of the first parent at the remote, and returns it.
func merge(t *testing.T, repo *gitserver.Repo, url, first, second string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, "clone", "--quiet", "--bare", url, dir)
	id := run(t, "--git-dir="+dir, "-c", "user.name=k", "-c", "user.email=k@l", "commit-tree", first+"^{tree}", "-p", first, "-p", second, "-m", "merge")
	run(t, "--git-dir="+dir, "push", "--quiet", url, id+":refs/heads/main")
	return id
}

func TestRetryAfterOfTheHostIsReported(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	m := newManager(t)
	url := server.URL("app")
	want := commit(t, repo, map[string]string{"a": "1"})
	tests := []struct {
		reason string
		status int
		after  time.Duration
		want   time.Duration
	}{
		{"too many requests", http.StatusTooManyRequests, 42 * time.Second, 42 * time.Second},
		{"not available", http.StatusServiceUnavailable, 7 * time.Second, 7 * time.Second},
		{"too long", http.StatusTooManyRequests, 1000 * time.Hour, time.Hour},
		{"no Retry-After", http.StatusTooManyRequests, 0, 0},
	}
	for _, tt := range tests {
		server.SetFailure(tt.status, tt.after)
		_, err := m.Fetch(t.Context(), gitsource.Access{Owner: tt.reason, URL: url}, []string{"main"})
		var remote *gitsource.RemoteError
		if !errors.As(err, &remote) || remote.RetryAfter != tt.want {
			t.Errorf("%s: got %v, want RetryAfter %s", tt.reason, err, tt.want)
		}
	}
	server.SetFailure(0, 0)
	if got := fetchOne(t, m, url, "main"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestHost(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://Git.example.com/a.git": "git.example.com", "https://git.example.com:8443/a": "git.example.com:8443", "https://git.example.com:443/a": "git.example.com", "https://[::1]/a": "[::1]", "ssh://git@host:22/a": "host",
		"git@host.example:team/a.git": "host.example", "file:///srv/a.git": "",
	} {
		if got := gitsource.Host(url); got != want {
			t.Errorf("%s: got %q, want %q", url, got, want)
		}
	}
}

// Servers without version 2 of the protocol send a commit only if a ref points to it, or if it is in the history
// of one.
func TestServerWithoutProtocolVersion2(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	server.SetOld(true)
	dir := "--git-dir=" + server.Dir("app")
	run(t, dir, "config", "uploadpack.allowAnySHA1InWant", "false")
	run(t, dir, "config", "uploadpack.allowFilter", "false")
	m := newManager(t)
	url := server.URL("app")
	first := commit(t, repo, map[string]string{"a": "1"})
	commit(t, repo, map[string]string{"a": "2"})
	third := commit(t, repo, map[string]string{"a": "3"})
	if got := fetchOne(t, m, url, "main"); got != third {
		t.Fatalf("got %s, want %s", got, third)
	}
	const none = "0123456789012345678901234567890123456789"
	refs, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{first, "main", none})
	check(t, err)
	var missing *gitsource.RefNotFoundError
	if refs[first].Commit != first || refs["main"].Commit != third || !errors.As(refs[none].Err, &missing) {
		t.Errorf("got %+v", refs)
	}
	if got := readFile(t, m, url, first, ".", "a"); got != "1" {
		t.Errorf("an older commit has %q", got)
	}
	fourth := commit(t, repo, map[string]string{"a": "4"})
	if got := fetchOne(t, m, url, "main"); got != fourth {
		t.Errorf("got %s, want %s", got, fourth)
	}
}
