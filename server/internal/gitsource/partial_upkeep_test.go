package gitsource

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Upkeep joins the packs of a mirror that lacks most files; then it is fetched into and read as before.
func TestUpkeepOfAPartialMirror(t *testing.T) {
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
	// Joining packs, and then collecting garbage from what was joined.
	must(u.maintainLocked(t.Context()))
	if got := countPacks(t, u.mirror); got > 2 {
		t.Errorf("there are %d packs after upkeep", got)
	}
	long := time.Now().Add(-2 * collectEvery)
	must(os.Chtimes(filepath.Join(u.dir, collectedFile), long, long))
	must(u.maintainLocked(t.Context()))
	last := push(4)
	for i, commit := range append(commits, last) {
		read(commit, "read", "a", fmt.Sprint("a", i))
		read(commit, "later", fmt.Sprint(i), fmt.Sprint("later", i))
	}
	if u.suspect.Load() {
		t.Error("the mirror is taken for damaged")
	}
}
