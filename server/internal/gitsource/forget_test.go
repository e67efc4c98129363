package gitsource_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// age sets the time of last use of all mirrors far into the past.
func age(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.git", "kedge-mirror.json"))
	check(t, err)
	long := time.Now().Add(-48 * time.Hour)
	for _, file := range files {
		check(t, os.Chtimes(file, long, long))
	}
}

func TestUnusedMirrorsAreDeleted(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	id := commit(t, repo, map[string]string{"a": "1"})
	dir := filepath.Join(t.TempDir(), "mirrors")
	first := managerIn(t, dir)
	accesses := map[string]gitsource.Access{}
	for _, owner := range []string{"kept", "dropped"} {
		accesses[owner] = gitsource.Access{Owner: owner, URL: server.URL("app")}
		_, err := first.Fetch(t.Context(), accesses[owner], []string{"main"})
		check(t, err)
	}
	keep := func(owner, url string) bool { return owner == "kept" && url == server.URL("app") }
	age(t, dir)
	if n, err := first.Forget(t.Context(), time.Hour, keep); n != 0 || err != nil {
		t.Errorf("right after use %d mirrors were deleted, %v", n, err)
	}
	check(t, first.Close())
	if _, err := first.Forget(t.Context(), time.Hour, func(string, string) bool { return false }); !errors.Is(err, gitsource.ErrClosed) {
		t.Errorf("a closed manager returned %v", err)
	}

	age(t, dir)
	check(t, os.MkdirAll(filepath.Join(dir, "half-deleted.git.gone", "objects"), 0o700))
	check(t, os.MkdirAll(filepath.Join(dir, "without-owner.git"), 0o700))
	long := time.Now().Add(-48 * time.Hour)
	check(t, os.Chtimes(filepath.Join(dir, "without-owner.git"), long, long))
	second := managerIn(t, dir)
	if n, err := second.Forget(t.Context(), time.Hour, keep); n != 2 || err != nil {
		t.Errorf("%d mirrors were deleted, %v", n, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.git*"))
	check(t, err)
	if len(left) != 1 {
		t.Errorf("the remaining folders are %q", left)
	}
	if _, err := second.Tree(t.Context(), accesses["kept"], id); err != nil {
		t.Errorf("the tree of the kept mirror: %v", err)
	}
	if _, err := second.Tree(t.Context(), accesses["dropped"], id); !errors.Is(err, gitsource.ErrNotFetched) {
		t.Errorf("the tree of the deleted mirror: %v", err)
	}
	refs, err := second.Fetch(t.Context(), accesses["dropped"], []string{"main"})
	if err != nil || refs["main"].Commit != id {
		t.Errorf("fetching the deleted mirror again: %v, %v", refs, err)
	}
}

// TestForgetDuringFetches runs both concurrently. No fetch fails.
func TestForgetDuringFetches(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	id := commit(t, repo, map[string]string{"a": "1"})
	m := newManager(t)
	done := make(chan struct{})
	var fetches, forgets sync.WaitGroup
	deleted := 0
	forgets.Go(func() {
		for {
			n, err := m.Forget(t.Context(), 0, func(string, string) bool { return false })
			deleted += n
			if err != nil {
				t.Error(err)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for range 3 {
		fetches.Go(func() {
			for range 8 {
				refs, err := m.Fetch(t.Context(), gitsource.Access{URL: server.URL("app")}, []string{"main"})
				if err != nil || refs["main"].Commit != id {
					t.Errorf("got %v, %v", refs, err)
				}
			}
		})
	}
	fetches.Wait()
	close(done)
	forgets.Wait()
	last, err := m.Forget(t.Context(), 0, func(string, string) bool { return false })
	if check(t, err); deleted+last == 0 {
		t.Error("no mirror was deleted")
	}
}
