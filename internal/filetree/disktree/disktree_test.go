package disktree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kedge-dev/kedge/internal/filetree"
)

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string) *Tree {
	t.Helper()
	tree, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	return tree
}

func TestShowsAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a/x.yaml", "x")
	write(t, dir, "a-b", "same")
	write(t, dir, "z", "same")
	write(t, dir, ".git/config", "secret")
	write(t, dir, "mod/.git", "gitdir: elsewhere")
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	tree := open(t, dir)
	got, err := tree.List(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	want := []filetree.Entry{
		{Name: "a", Mode: filetree.Dir}, {Name: "a-b"}, {Name: "link", Mode: filetree.Symlink}, {Name: "mod", Mode: filetree.Submodule}, {Name: "z"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(filetree.Entry{}, "ID")); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if got[1].ID != got[4].ID || got[1].ID == got[2].ID {
		t.Errorf("equal content needs equal IDs: %+v", got)
	}
	if target, err := tree.Read(t.Context(), got[2], 100); err != nil || string(target) != "/etc/passwd" {
		t.Errorf("link: %q, %v", target, err)
	}
	if data, err := tree.Read(t.Context(), got[4], 4); err != nil || string(data) != "same" {
		t.Errorf("file: %q, %v", data, err)
	}
	if _, err := tree.Read(t.Context(), got[4], 3); !errors.Is(err, filetree.ErrTooBig) {
		t.Errorf("beyond the limit: %v", err)
	}
	for _, name := range []string{"none", "a/x.yaml", "z"} {
		if _, err := tree.List(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIDChangesWithWhatIsBelow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a/b/x", "1")
	write(t, dir, "c/b/x", "1")
	tree := open(t, dir)
	id := func(name string) string {
		id, err := tree.ID(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	before := id("a")
	if before != id("c") {
		t.Error("equal folders have different IDs")
	}
	write(t, dir, "a/b/x", "2")
	if before == id("a") {
		t.Error("the ID is the same after an edit")
	}
}
