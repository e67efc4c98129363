package gitsource_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// Histories can be long. Only what is read is fetched.
func TestOnlyTheNewestCommitIsFetched(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	dir := filepath.Join(t.TempDir(), "mirrors")
	m := managerIn(t, dir)
	old := commit(t, repo, map[string]string{"a": "old"})
	commit(t, repo, map[string]string{"a": "2"})
	tip := commit(t, repo, map[string]string{"a": "3"})
	url := server.URL("app")
	if got := fetchOne(t, m, url, "main"); got != tip {
		t.Fatalf("got %s, want %s", got, tip)
	}
	mirror := onlyMirror(t, dir)
	if got := run(t, "--git-dir="+mirror, "rev-list", "--count", "--all"); got != "1" {
		t.Errorf("%s commits were fetched, want 1", got)
	}
	// An older commit can be fetched, and then a newer one.
	if got := fetchOne(t, m, url, old); got != old {
		t.Errorf("an older commit returned %s", got)
	}
	if got := readFile(t, m, url, old, ".", "a"); got != "old" {
		t.Errorf("an older commit has %q", got)
	}
	next := commit(t, repo, map[string]string{"a": "4"})
	if got := fetchOne(t, m, url, "main"); got != next {
		t.Errorf("got %s, want %s", got, next)
	}
	if got := readFile(t, m, url, next, ".", "a"); got != "4" {
		t.Errorf("the newest commit has %q", got)
	}
}

func onlyMirror(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.git"))
	check(t, err)
	if len(found) != 1 {
		t.Fatalf("%d mirrors, want one", len(found))
	}
	return found[0]
}

// large returns the files of a repository that is too large to be fetched completely.
func large(repoFiles int) map[string]string {
	files := map[string]string{"odd/readme.md": "read me", "big/x.bin": noiseText(300 << 10)}
	for i := range repoFiles {
		files[fmt.Sprintf("apps/%d/app.yaml", i)] = fmt.Sprintf("n: %d\n", i)
		files[fmt.Sprintf("apps/%d/more.yaml", i)] = fmt.Sprintf("more: %d\n", i)
	}
	return files
}

// noiseText returns text that does not compress.
func noiseText(n int) string {
	var b strings.Builder
	for x := uint64(88172645463325252); b.Len() < n; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		fmt.Fprintf(&b, "%c%c%c%c%c%c", byte(x)|1, byte(x>>8)|1, byte(x>>16)|1, byte(x>>24)|1, byte(x>>32)|1, byte(x>>40)|1)
	}
	return b.String()
}

func TestFilesOfALargeRepositoryAreFetchedOnDemand(t *testing.T) {
	t.Parallel()
	overPrivate(t, func(t *testing.T, p *privateRepo) {
		p.allow("one")
		tip := commit(t, p.repo, large(50))
		m := p.again(t, gitsource.Config{MaxWholeBytes: 100 << 10, Addresses: &egress.Policy{AllowLoopback: true}})
		access := p.access("acme", "one")
		refs, err := m.Fetch(t.Context(), access, []string{"main"})
		check(t, err)
		if refs["main"].Commit != tip {
			t.Fatalf("got %+v, want %s", refs["main"], tip)
		}
		mirror := p.mirrors(t)[0]
		if n := blobs(t, mirror); n != 0 {
			t.Errorf("%d files were fetched before any was read", n)
		}
		tree, err := m.Tree(t.Context(), access, tip)
		check(t, err)
		before := p.server.Requests()
		for i := range 3 {
			entries, err := tree.List(t.Context(), fmt.Sprintf("apps/%d", i))
			check(t, err)
			data, err := tree.Read(t.Context(), entries[0], 1<<20)
			check(t, err)
			if want := fmt.Sprintf("n: %d\n", i); string(data) != want {
				t.Errorf("got %q, want %q", data, want)
			}
			data, err = tree.Read(t.Context(), entries[1], 1<<20)
			check(t, err)
			if want := fmt.Sprintf("more: %d\n", i); string(data) != want {
				t.Errorf("got %q, want %q", data, want)
			}
		}
		if n := blobs(t, mirror); n != 6 {
			t.Errorf("%d files were fetched for 6 that were read", n)
		}
		if n := p.server.Requests() - before; n > 9 {
			t.Errorf("%d requests for three folders", n)
		}
		// Changed files are fetched when they are read, also after a restart, and pushing works.
		next := commit(t, p.repo, map[string]string{"apps/1/app.yaml": "n: new\n"})
		check(t, m.Close())
		m = p.again(t, gitsource.Config{MaxWholeBytes: 100 << 10, Addresses: &egress.Policy{AllowLoopback: true}})
		refs, err = m.Fetch(t.Context(), access, []string{"main", tip})
		check(t, err)
		if refs["main"].Commit != next || refs[tip].Commit != tip {
			t.Errorf("got %+v, want %s", refs, next)
		}
		pushed, err := m.Commit(t.Context(), access, edit(next, map[string]string{"apps/2/app.yaml": "n: pushed\n"}))
		check(t, err)
		refs, err = m.Fetch(t.Context(), access, []string{"main"})
		check(t, err)
		if refs["main"].Commit != pushed.Commit {
			t.Errorf("got %s, want %s", refs["main"].Commit, pushed.Commit)
		}
		tree, err = m.Tree(t.Context(), access, pushed.Commit)
		check(t, err)
		for folder, want := range map[string]string{"apps/1": "n: new\n", "apps/2": "n: pushed\n", "apps/40": "n: 40\n"} {
			entries, err := tree.List(t.Context(), folder)
			check(t, err)
			data, err := tree.Read(t.Context(), entries[0], 1<<20)
			check(t, err)
			if string(data) != want {
				t.Errorf("%s: got %q, want %q", folder, data, want)
			}
		}
		if size := packBytes(t, mirror); size > 100<<10 {
			t.Errorf("the packs have %d bytes", size)
		}
	})
}

// blobs counts the files whose contents are in a mirror.
func blobs(t *testing.T, mirror string) int {
	t.Helper()
	out := run(t, "--git-dir="+mirror, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)")
	return strings.Count(out, "blob")
}

func packBytes(t *testing.T, mirror string) (size int64) {
	t.Helper()
	packs, err := filepath.Glob(filepath.Join(mirror, "objects", "pack", "*.pack"))
	check(t, err)
	for _, pack := range packs {
		info, err := os.Stat(pack)
		check(t, err)
		size += info.Size()
	}
	return size
}

// A server without support for filters sends the contents of all files, up to the size limit.
func TestServerWithoutFilterSupport(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	run(t, "--git-dir="+server.Dir("app"), "config", "uploadpack.allowFilter", "false")
	tip := commit(t, repo, large(5))
	m := managerWith(t, gitsource.Config{Allow: []string{"http"}, Addresses: &egress.Policy{AllowLoopback: true}, MaxWholeBytes: 100 << 10})
	url := server.URL("app")
	if got := fetchOne(t, m, url, "main"); got != tip {
		t.Fatalf("got %s, want %s", got, tip)
	}
	if got := readFile(t, m, url, tip, "apps/3", "app.yaml"); got != "n: 3\n" {
		t.Errorf("got %q", got)
	}
	next := commit(t, repo, map[string]string{"apps/3/app.yaml": "n: new\n"})
	if got := fetchOne(t, m, url, "main"); got != next {
		t.Fatalf("got %s, want %s", got, next)
	}
	if got := readFile(t, m, url, next, "apps/3", "app.yaml"); got != "n: new\n" {
		t.Errorf("got %q", got)
	}
}
