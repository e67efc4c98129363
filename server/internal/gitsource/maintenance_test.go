package gitsource

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// fetchedRepo returns the mirror of a repository with one pack for each of n commits, and the commits.
func fetchedRepo(t *testing.T, n, maxPacks int) (*Manager, *mirror, []string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	remote := filepath.Join(t.TempDir(), "remote.git")
	repo, err := gitserver.NewRepo(t.Context(), remote, "")
	must(err)
	m, err := New(Config{Dir: t.TempDir(), Allow: []string{"file"}})
	must(err)
	t.Cleanup(func() { must(m.Close()) })
	url := "file://" + remote
	u, err := m.acquire(Access{URL: url})
	must(err)
	m.release(u.mirror)
	r := u.mirror
	r.maxPacks = maxPacks
	var commits []string
	for i := range n {
		commit, err := repo.Commit(t.Context(), map[string]string{"a": fmt.Sprint(i)}, "a commit")
		must(err)
		commits = append(commits, commit)
		_, err = m.Fetch(t.Context(), Access{URL: url}, []string{"main"})
		must(err)
	}
	return m, r, commits
}

func countPacks(t *testing.T, r *mirror) int {
	t.Helper()
	packs, err := filepath.Glob(filepath.Join(r.dir, "objects/pack/*.pack"))
	if err != nil {
		t.Fatal(err)
	}
	return len(packs)
}

func TestPacksOfManyFetchesAreMerged(t *testing.T) {
	t.Parallel()
	for _, collect := range []bool{false, true} {
		t.Run(fmt.Sprintf("collecting garbage too: %t", collect), func(t *testing.T) {
			t.Parallel()
			m, r, commits := fetchedRepo(t, 4, 100)
			if got := countPacks(t, r); got != 4 {
				t.Fatalf("there are %d packs before maintenance, want one per fetch", got)
			}
			r.maxPacks = 3
			if collect {
				long := time.Now().Add(-2 * collectInterval)
				if err := os.Chtimes(filepath.Join(r.dir, collectedFile), long, long); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := m.Fetch(t.Context(), Access{URL: r.url}, []string{"main"}); err != nil {
				t.Fatal(err)
			}
			m.work.Wait()
			if got := countPacks(t, r); got != 1 {
				t.Errorf("there are %d packs after maintenance", got)
			}
			info, err := os.Stat(filepath.Join(r.dir, collectedFile))
			if err != nil || time.Since(info.ModTime()) > collectInterval {
				t.Errorf("the recorded time of the last collection is %v, %v", info, err)
			}
			for i, commit := range commits {
				tree, err := m.Tree(t.Context(), Access{URL: r.url}, commit)
				if err != nil {
					t.Fatal(err)
				}
				entries, err := tree.List(t.Context(), ".")
				if err != nil || len(entries) != 1 {
					t.Fatalf("commit %d: %v, %v", i, entries, err)
				}
				if content, err := tree.Read(t.Context(), entries[0], 10); err != nil || string(content) != fmt.Sprint(i) {
					t.Errorf("commit %d: %q, %v", i, content, err)
				}
			}
		})
	}
}

// TestDamageFoundByReadersIsRepaired damages objects that git fetch does not check: all but the commit.
func TestDamageFoundByReadersIsRepaired(t *testing.T) {
	t.Parallel()
	m, r, commits := fetchedRepo(t, 1, 100)
	whole, err := m.Tree(t.Context(), Access{URL: r.url}, commits[0])
	if err != nil {
		t.Fatal(err)
	}
	opened, err := m.Tree(t.Context(), Access{URL: r.url}, commits[0])
	if err != nil {
		t.Fatal(err)
	}
	broken := opened.(*tree)
	broken.root = "0123456789012345678901234567890123456789"
	if _, err := broken.List(t.Context(), "."); err == nil {
		t.Fatal("a missing object was read")
	}
	marker := filepath.Join(r.dir, "marker")
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Fetch(t.Context(), Access{URL: r.url}, []string{"main"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(marker); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the mirror was not recreated: %v", err)
	}
	if _, err := whole.List(t.Context(), "."); err != nil {
		t.Errorf("after the fetch: %v", err)
	}
}

func TestMirrorInUseIsNotDeleted(t *testing.T) {
	t.Parallel()
	m, r, _ := fetchedRepo(t, 1, 100)
	u, err := m.acquire(Access{URL: r.url})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{0, 1} {
		if n, err := m.Forget(t.Context(), 0, func(string, string) bool { return false }); n != want || err != nil {
			t.Errorf("%d mirrors were deleted, %v, want %d", n, err, want)
		}
		if want == 0 {
			m.release(u.mirror)
		}
	}
}

// Two callers with different objects for one folder would not take turns.
func TestWaitingCallKeepsADeletedMirror(t *testing.T) {
	t.Parallel()
	m, r, _ := fetchedRepo(t, 1, 100)
	key := mirrorKey("", r.url)
	if taken, err := m.acquireIdle(key, metadata{URL: r.url}, 0); taken != r || err != nil {
		t.Fatalf("got %p, %v, want %p", taken, err, r)
	}
	waiting, err := m.acquire(Access{URL: r.url})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.discardLocked(); err != nil {
		t.Fatal(err)
	}
	m.releaseDeleted(key, r)
	next, err := m.acquire(Access{URL: r.url})
	if err != nil || next.mirror != waiting.mirror {
		t.Errorf("the next call has %p, the waiting one has %p, %v", next.mirror, waiting.mirror, err)
	}
}
