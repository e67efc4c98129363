package gitsource

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// After maintenance has merged the packs of a partial mirror, fetching and reading work as before.
func TestMaintenanceOfAPartialMirror(t *testing.T) {
	t.Parallel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	m, repo, access, u := mirrorOf(t, Config{Allow: []string{"http", "file"}, MaxWholeBytes: 1})
	push := func(i int) string {
		t.Helper()
		commit, err := repo.CommitAndPush(t.Context(), map[string]string{
			"read/a": fmt.Sprint("a", i), fmt.Sprintf("later/%d", i): fmt.Sprint("later", i),
		}, "a commit")
		must(err)
		_, err = m.Fetch(t.Context(), access, []string{"main"})
		must(err)
		return commit
	}
	read := func(commit, folder, name, want string) {
		t.Helper()
		tree, err := m.Tree(t.Context(), access, commit)
		must(err)
		entries, err := tree.List(t.Context(), folder)
		must(err)
		for _, e := range entries {
			if e.Name == name {
				got, err := tree.Read(t.Context(), e, 100)
				if err != nil || string(got) != want {
					t.Errorf("%s/%s: got %q, %v, want %q", folder, name, got, err, want)
				}
				return
			}
		}
		t.Errorf("%s has no %s", folder, name)
	}
	var commits []string
	for i := range 4 {
		commits = append(commits, push(i))
		read(commits[i], "read", "a", fmt.Sprint("a", i))
	}
	// Merge packs, and then collect garbage.
	must(u.maintainLocked(t.Context()))
	if got := countPacks(t, u.mirror); got > 2 {
		t.Errorf("there are %d packs after maintenance", got)
	}
	long := time.Now().Add(-2 * collectInterval)
	must(os.Chtimes(filepath.Join(u.dir, collectedFile), long, long))
	must(u.maintainLocked(t.Context()))
	last := push(4)
	for i, commit := range append(commits, last) {
		read(commit, "read", "a", fmt.Sprint("a", i))
		read(commit, "later", fmt.Sprint(i), fmt.Sprint("later", i))
	}
	if u.suspect.Load() {
		t.Error("the mirror is marked as damaged")
	}
}
