package gitsource_test

import (
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

func readFile(t testing.TB, m *gitsource.Manager, url, commit, folder, name string) string {
	t.Helper()
	tree, err := m.Tree(t.Context(), gitsource.Access{URL: url}, commit)
	check(t, err)
	entries, err := tree.List(t.Context(), folder)
	check(t, err)
	for _, e := range entries {
		if e.Name == name {
			data, err := tree.Read(t.Context(), e, 1<<20)
			check(t, err)
			return string(data)
		}
	}
	t.Fatalf("%s has no %s", folder, name)
	return ""
}

func TestTreeListsTheFilesOfACommit(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	m := newManager(t)
	url := server.URL("app")
	id := commit(t, repo, map[string]string{
		"b.yaml":      "b",
		"b/inner":     "", // git sorts the folder b after b.yaml
		"a/x/deep.md": "line\nline\n",
		"link":        gitserver.Symlink("/etc/passwd"),
		"ünïcode":     "u",
	})
	if _, err := m.Tree(t.Context(), gitsource.Access{URL: url}, id); !errors.Is(err, gitsource.ErrNotFetched) {
		t.Errorf("a tree before any fetch returned %v", err)
	}
	fetchOne(t, m, url, "main")
	tree, err := m.Tree(t.Context(), gitsource.Access{URL: url}, id)
	check(t, err)
	entries, err := tree.List(t.Context(), ".")
	check(t, err)
	want := []filetree.Entry{
		{Name: "a", Mode: filetree.Dir}, {Name: "b", Mode: filetree.Dir}, {Name: "b.yaml"},
		{Name: "link", Mode: filetree.Symlink}, {Name: "ünïcode"},
	}
	if diff := cmp.Diff(want, entries, cmpopts.IgnoreFields(filetree.Entry{}, "ID")); diff != "" {
		t.Errorf("the root (-want +got):\n%s", diff)
	}
	if got := readFile(t, m, url, id, "a/x", "deep.md"); got != "line\nline\n" {
		t.Errorf("a/x/deep.md contains %q", got)
	}
	if got := readFile(t, m, url, id, "b", "inner"); got != "" {
		t.Errorf("an empty file contains %q", got)
	}
	for _, name := range []string{"nowhere", "b.yaml", "link", "a/nowhere", "a/x/deep.md/more", ".."} {
		if _, err := tree.List(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("listing %q returned %v", name, err)
		}
	}
	if _, err := tree.Read(t.Context(), entries[2], 0); !errors.Is(err, filetree.ErrTooBig) {
		t.Errorf("reading beyond the limit returned %v", err)
	}
}

func TestEqualFoldersHaveEqualIDs(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	m := newManager(t)
	url := server.URL("app")
	ids := map[string][]string{}
	for _, content := range []string{"1", "2"} {
		id := commit(t, repo, map[string]string{"same/a": "same", "other/a": content})
		fetchOne(t, m, url, "main")
		tree, err := m.Tree(t.Context(), gitsource.Access{URL: url}, id)
		check(t, err)
		for _, folder := range []string{"same", "other"} {
			treeID, err := tree.ID(t.Context(), folder)
			check(t, err)
			ids[folder] = append(ids[folder], treeID)
		}
	}
	if ids["same"][0] != ids["same"][1] || ids["other"][0] == ids["other"][1] {
		t.Errorf("the folders are %v", ids)
	}
}

func TestReadersSeeNewCommits(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	m := newManager(t)
	url := server.URL("app")
	old := commit(t, repo, map[string]string{"a": "1"})
	fetchOne(t, m, url, "main")
	readFile(t, m, url, old, ".", "a") // starts the reader
	id := commit(t, repo, map[string]string{"a": strings.Repeat("2", 100_000)})
	fetchOne(t, m, url, "main")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := readFile(t, m, url, id, ".", "a"); len(got) != 100_000 {
				t.Errorf("the new file has %d bytes", len(got))
			}
		})
	}
	wg.Wait()
}
