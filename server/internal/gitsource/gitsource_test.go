package gitsource_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// overBoth runs a test with a repository over http and with one over file.
//
// covers: G1 (file, http)
func overBoth(t *testing.T, test func(t *testing.T, m *gitsource.Manager, url string, repo *gitserver.Repo)) {
	t.Helper()
	for _, transport := range []string{"http", "file"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			server, repo := startServer(t)
			url := server.URL("app")
			if transport == "file" {
				url = server.FileURL("app")
			}
			test(t, newManager(t), url, repo)
		})
	}
}

// covers: G4
func TestAllKindsOfRevisionsAreResolved(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, m *gitsource.Manager, url string, repo *gitserver.Repo) {
		first := commit(t, repo, map[string]string{"a.yaml": "1"})
		check(t, repo.Tag(t.Context(), "v1", ""))
		check(t, repo.Tag(t.Context(), "v1-annotated", "a release"))
		check(t, repo.Push(t.Context(), "refs/tags/v1", "refs/tags/v1-annotated"))
		second := commit(t, repo, map[string]string{"a.yaml": "2"})
		check(t, repo.Switch(t.Context(), "feature/x"))
		third := commit(t, repo, map[string]string{"a.yaml": "3"})

		revisions := []string{"", "main", "feature/x", "v1", "v1-annotated", "refs/heads/main", first, "nowhere", "bad..name"}
		want := map[string]gitsource.Ref{
			"":                {Name: "HEAD", Commit: second},
			"main":            {Name: "refs/heads/main", Commit: second},
			"feature/x":       {Name: "refs/heads/feature/x", Commit: third},
			"v1":              {Name: "refs/tags/v1", Commit: first},
			"v1-annotated":    {Name: "refs/tags/v1-annotated", Commit: first},
			"refs/heads/main": {Name: "refs/heads/main", Commit: second},
			first:             {Commit: first},
			"nowhere":         {Err: &gitsource.RefNotFoundError{Revision: "nowhere"}},
			"bad..name":       {Err: &gitsource.RefNotFoundError{Revision: "bad..name"}},
		}
		for range 2 { // first and repeated fetch
			fetched, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, revisions)
			check(t, err)
			if diff := cmp.Diff(want, fetched); diff != "" {
				t.Errorf("Fetch (-want +got):\n%s", diff)
			}
		}
		for revision, content := range map[string]string{"": "2", "v1-annotated": "1", "feature/x": "3"} {
			if got := readFile(t, m, url, want[revision].Commit, ".", "a.yaml"); got != content {
				t.Errorf("%q contains %q, want %q", revision, got, content)
			}
		}
	})
}

func TestCommitIsFetchedByItsID(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, m *gitsource.Manager, url string, repo *gitserver.Repo) {
		old := commit(t, repo, map[string]string{"a.yaml": "old"})
		commit(t, repo, map[string]string{"a.yaml": "new"})
		missing := strings.Repeat("deadbeef", 5)
		refs, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{old, missing, "main"})
		check(t, err)
		if refs[old].Err != nil || refs["main"].Err != nil {
			t.Errorf("a missing commit affects the others: %v, %v", refs[old].Err, refs["main"].Err)
		}
		var notFound *gitsource.RefNotFoundError
		if !errors.As(refs[missing].Err, &notFound) {
			t.Errorf("a missing commit returned %v", refs[missing].Err)
		}
		if got := readFile(t, m, url, old, ".", "a.yaml"); got != "old" {
			t.Errorf("the old commit contains %q", got)
		}
	})
}

// covers: G4
func TestChangesAtTheRemoteAreFollowed(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, m *gitsource.Manager, url string, repo *gitserver.Repo) {
		first := commit(t, repo, map[string]string{"a.yaml": "1"})
		second := commit(t, repo, map[string]string{"a.yaml": "2"})
		if got := fetchOne(t, m, url, "main"); got != second {
			t.Fatalf("main is %s, want %s", got, second)
		}
		// A force push rewrites the branch.
		check(t, repo.Reset(t.Context(), first))
		rewritten, err := repo.Commit(t.Context(), map[string]string{"a.yaml": "rewritten"}, "instead")
		check(t, err)
		check(t, repo.ForcePush(t.Context()))
		if got := fetchOne(t, m, url, "main"); got != rewritten {
			t.Errorf("after a force-push main is %s, want %s", got, rewritten)
		}
		// A branch is deleted while another one changes.
		check(t, repo.Switch(t.Context(), "doomed"))
		commit(t, repo, map[string]string{"a.yaml": "doomed"})
		fetchOne(t, m, url, "doomed")
		check(t, repo.DeleteRemote(t.Context(), "refs/heads/doomed"))
		refs, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{"doomed", "main"})
		check(t, err)
		want := map[string]gitsource.Ref{
			"main":   {Name: "refs/heads/main", Commit: rewritten},
			"doomed": {Err: &gitsource.RefNotFoundError{Revision: "doomed"}},
		}
		if diff := cmp.Diff(want, refs); diff != "" {
			t.Errorf("with a deleted branch (-want +got):\n%s", diff)
		}
		// The name of the branch becomes a folder of branches, and then a tag.
		check(t, repo.Switch(t.Context(), "main"))
		check(t, repo.Drop(t.Context(), "doomed"))
		check(t, repo.Switch(t.Context(), "doomed/again"))
		again := commit(t, repo, map[string]string{"a.yaml": "again"})
		if got := fetchOne(t, m, url, "doomed/again"); got != again {
			t.Errorf("doomed/again is %s, want %s", got, again)
		}
		// The same without a fetch of the branch in between.
		check(t, repo.Switch(t.Context(), "flat"))
		commit(t, repo, map[string]string{"a.yaml": "flat"})
		fetchOne(t, m, url, "flat")
		check(t, repo.DeleteRemote(t.Context(), "refs/heads/flat"))
		check(t, repo.Switch(t.Context(), "doomed/again"))
		check(t, repo.Drop(t.Context(), "flat"))
		check(t, repo.Switch(t.Context(), "flat/no/more"))
		check(t, repo.Push(t.Context()))
		fetchOne(t, m, url, "flat/no/more")

		check(t, repo.Tag(t.Context(), "doomed", "now a tag"))
		check(t, repo.Push(t.Context(), "refs/tags/doomed"))
		if got := fetchOne(t, m, url, "doomed"); got != again {
			t.Errorf("the tag doomed is %s, want %s", got, again)
		}
	})
}

// covers: G4
func TestEmptyRepositoryReturnsErrEmpty(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, m *gitsource.Manager, url string, repo *gitserver.Repo) {
		for _, revision := range []string{"", "main", "refs/heads/main"} {
			if _, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{revision}); !errors.Is(err, gitsource.ErrEmpty) {
				t.Errorf("fetching %q from an empty repository returned %v", revision, err)
			}
		}
		check(t, repo.Switch(t.Context(), "other"))
		commit(t, repo, map[string]string{"a.yaml": "1"})
		refs, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{""})
		check(t, err)
		var notFound *gitsource.RefNotFoundError
		if !errors.As(refs[""].Err, &notFound) {
			t.Errorf("a default branch that does not exist returned %v", refs[""].Err)
		}
		check(t, repo.Switch(t.Context(), "main"))
		want := commit(t, repo, map[string]string{"a.yaml": "2"})
		if got := fetchOne(t, m, url, ""); got != want {
			t.Errorf("the default branch is %s, want %s", got, want)
		}
	})
}

// covers: G12
func TestRepositoriesAreIndependent(t *testing.T) {
	t.Parallel()
	server, one := startServer(t)
	two := createRepo(t, server, "two")
	m := newManager(t)
	commits := map[string]string{
		server.URL("app"): commit(t, one, map[string]string{"a.yaml": "one"}),
		server.URL("two"): commit(t, two, map[string]string{"a.yaml": "two"}),
	}
	var wg sync.WaitGroup
	for url, want := range commits {
		for range 4 {
			wg.Go(func() {
				refs, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{"main"})
				if err != nil || refs["main"].Commit != want {
					t.Errorf("%s: got %v, %v, want %s", url, refs, err, want)
				}
			})
		}
	}
	wg.Wait()
	if _, err := m.Tree(t.Context(), gitsource.Access{URL: server.URL("app")}, commits[server.URL("two")]); !errors.Is(err, gitsource.ErrNotFetched) {
		t.Errorf("a commit of another repository returned %v", err)
	}
	check(t, server.Remove("two"))
	var remote *gitsource.RemoteError
	if _, err := m.Fetch(t.Context(), gitsource.Access{URL: server.URL("two")}, []string{"main"}); !errors.As(err, &remote) {
		t.Errorf("a deleted repository returned %v", err)
	} else if remote.Problem != "repository not found or not readable" {
		t.Errorf("a deleted repository returned %q", remote.Problem)
	}
	// Fetched commits stay readable, and the other repository is not affected.
	if got := readFile(t, m, server.URL("two"), commits[server.URL("two")], ".", "a.yaml"); got != "two" {
		t.Errorf("the file of the deleted repository is %q", got)
	}
	fetchOne(t, m, server.URL("app"), "main")
}

func TestRepeatedFetchNeedsFewRequests(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	m := newManager(t)
	commit(t, repo, map[string]string{"a.yaml": "1"})
	fetchOne(t, m, server.URL("app"), "main")
	commit(t, repo, map[string]string{"a.yaml": "2"})
	before := server.Requests()
	fetchOne(t, m, server.URL("app"), "main")
	// Protocol version 2: capabilities, ls-refs, and fetch, which may need a second request.
	if n := server.Requests() - before; n > 4 {
		t.Errorf("a warm fetch made %d requests", n)
	}
}

func TestFaultsOfTheRemoteAreReported(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	want := commit(t, repo, map[string]string{"a.yaml": "1"})
	dir := filepath.Join(t.TempDir(), "mirrors")
	m, err := gitsource.New(gitsource.Config{
		Dir: dir, Allow: []string{"http"}, Timeout: 2 * time.Second, Addresses: &egress.Policy{AllowLoopback: true},
	})
	check(t, err)
	defer m.Close()
	url := server.URL("app")
	problemOf := func(url string) string {
		_, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{"main"})
		var remote *gitsource.RemoteError
		if !errors.As(err, &remote) {
			t.Fatalf("fetching %s returned %v", url, err)
		}
		return remote.Problem
	}
	server.SetDown(true)
	if got := problemOf(url); got != "the server reports an internal error" {
		t.Errorf("a server that is down: %q", got)
	}
	server.SetDown(false)
	server.SetDelay(time.Hour)
	if got := problemOf(url); got != "timed out after 2s" {
		t.Errorf("a server that does not respond: %q", got)
	}
	server.SetDelay(0)
	if got := problemOf("http://127.0.0.1:1/app.git"); got != "host not reachable" {
		t.Errorf("a closed port: %q", got)
	}
	if got := problemOf(server.URL("none")); got != "repository not found or not readable" {
		t.Errorf("a missing repository: %q", got)
	}
	if got := fetchOne(t, m, url, "main"); got != want {
		t.Errorf("after the faults main is %s, want %s", got, want)
	}
}

func TestCanceledFetchLeavesTheMirrorUsable(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	m := newManager(t)
	want := commit(t, repo, map[string]string{"a.yaml": "1"})
	server.SetDelay(time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := m.Fetch(ctx, gitsource.Access{URL: server.URL("app")}, []string{"main"}); err == nil {
		t.Fatal("a fetch from a server that does not respond succeeded")
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("the canceled fetch took %s", took)
	}
	server.SetDelay(0)
	if got := fetchOne(t, m, server.URL("app"), "main"); got != want {
		t.Errorf("main is %s, want %s", got, want)
	}
}

func TestMirrorSurvivesRestartsAndStaleLocks(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	dir := filepath.Join(t.TempDir(), "mirrors")
	url := server.URL("app")
	want := commit(t, repo, map[string]string{"a.yaml": "1"})
	first := managerIn(t, dir)
	fetchOne(t, first, url, "main")
	check(t, first.Close())
	if _, err := first.Fetch(t.Context(), gitsource.Access{URL: url}, []string{"main"}); !errors.Is(err, gitsource.ErrClosed) {
		t.Errorf("a closed manager returned %v", err)
	}

	second := managerIn(t, dir)
	if got := readFile(t, second, url, want, ".", "a.yaml"); got != "1" {
		t.Errorf("after a restart the file is %q", got)
	}
	mirrors, err := filepath.Glob(filepath.Join(dir, "*.git"))
	check(t, err)
	if len(mirrors) != 1 {
		t.Fatalf("there are %d mirrors", len(mirrors))
	}
	// A killed git leaves locks. The first use after a start removes them.
	refs, err := filepath.Glob(filepath.Join(mirrors[0], "refs/kedge/*"))
	check(t, err)
	check(t, os.WriteFile(refs[0]+".lock", nil, 0o600))
	want = commit(t, repo, map[string]string{"a.yaml": "2"})
	if got := fetchOne(t, second, url, "main"); got != want {
		t.Errorf("with a stale lock main is %s, want %s", got, want)
	}
}

// damage truncates the objects of the only mirror in dir, like a power failure.
func damage(t *testing.T, dir string) {
	t.Helper()
	objects, err := filepath.Glob(filepath.Join(dir, "*.git/objects/*/*"))
	check(t, err)
	if len(objects) == 0 {
		t.Fatal("the mirror has no objects")
	}
	for _, object := range objects {
		check(t, os.Chmod(object, 0o600))
		check(t, os.Truncate(object, 0))
	}
}

func TestDamagedMirrorIsRecreated(t *testing.T) {
	t.Parallel()
	for _, changed := range []bool{true, false} {
		t.Run(fmt.Sprintf("with something to fetch: %t", changed), func(t *testing.T) {
			t.Parallel()
			server, repo := startServer(t)
			url := server.URL("app")
			dir := filepath.Join(t.TempDir(), "mirrors")
			m := managerIn(t, dir)
			want := commit(t, repo, map[string]string{"a.yaml": "1", "same/b.yaml": "same"})
			fetchOne(t, m, url, "main")
			damage(t, dir)
			if changed {
				want = commit(t, repo, map[string]string{"a.yaml": "2"})
			}
			// A reader may find the damage. Then the next fetch recreates the mirror.
			if got := fetchOne(t, m, url, "main"); got != want {
				t.Fatalf("main is %s, want %s", got, want)
			}
			if tree, err := m.Tree(t.Context(), gitsource.Access{URL: url}, want); err == nil {
				_, _ = tree.List(t.Context(), "same")
			}
			fetchOne(t, m, url, "main")
			if got := readFile(t, m, url, want, "same", "b.yaml"); got != "same" {
				t.Errorf("the file is %q", got)
			}
		})
	}
}
