package treefs

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
)

func linkedTree() *memtree.Tree {
	return memtree.New(map[string]string{
		"apps/a/x.yaml": "x", "apps/a/sub/y.yaml": "y", "base/z.yaml": "z",
		"apps/a/link.yaml": memtree.Link("../../base/z.yaml"), "apps/b": memtree.Link("a"), "apps/a/self": memtree.Link("."),
		"deep/one": memtree.Link("two"), "deep/two": memtree.Link("../apps/b/sub"), "broken": memtree.Link("none/at/all"),
		"out": memtree.Link("../etc/passwd"), "apps/sneaky": memtree.Link("../base/../../etc"), "abs": memtree.Link("/etc/passwd"),
		"loop1": memtree.Link("loop2"), "loop2": memtree.Link("loop1"), "mod": memtree.Submodule, "nul": memtree.Link("a\x00b"),
		"lfs.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 3\n", "empty": memtree.Link(""),
		"long": memtree.Link(strings.Repeat("a/", 3000)), "through": memtree.Link("base/z.yaml/.."),
	})
}

func TestFollowsLinksInsideTheTree(t *testing.T) {
	t.Parallel()
	tests := []struct{ reason, path, want, real string }{
		{"a file", "apps/a/x.yaml", "x", "apps/a/x.yaml"},
		{"dots and slashes", "./apps//a/../a/x.yaml", "x", "apps/a/x.yaml"},
		{"a link to a file of another folder", "apps/a/link.yaml", "z", "base/z.yaml"},
		{"a link to a folder", "apps/b/x.yaml", "x", "apps/a/x.yaml"},
		{"a link to a link to a folder", "deep/one/y.yaml", "y", "apps/a/sub/y.yaml"},
		{"a link to its own folder", "apps/a/self/self/x.yaml", "x", "apps/a/x.yaml"},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			f := New(linkedTree(), Limits{})
			data, err := f.Read(t.Context(), tt.path)
			if err != nil || string(data) != tt.want {
				t.Errorf("read %q, %v, want %q", data, err, tt.want)
			}
			node, err := f.Stat(t.Context(), tt.path)
			if err != nil || node.Real != tt.real || node.Kind != File {
				t.Errorf("stat %+v, %v, want the real path %q", node, err, tt.real)
			}
		})
	}
}

// covers: G9, G10 (symbolic links out of the tree, in circles, submodules, limits)
func TestRefusesWhatAUserHasToMend(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason, path string
		limits       Limits
		want         string
	}{
		{"a link out of the tree", "out", Limits{}, "leads out of the repository"},
		{"a link out of the tree by detours", "apps/sneaky/passwd", Limits{}, "leads out of the repository"},
		{"an absolute link", "abs", Limits{}, "absolute path"},
		{"links in a circle", "loop1", Limits{}, "circular"},
		{"a link with a NUL byte", "nul", Limits{}, "usable target"},
		{"a link to nothing at all", "empty", Limits{}, "usable target"},
		{"a link with an endless target", "long", Limits{}, "longer than"},
		{"a submodule", "mod", Limits{}, "submodule"},
		{"something in a submodule", "mod/x.yaml", Limits{}, "submodule"},
		{"a pointer of Git LFS", "lfs.bin", Limits{}, "Git LFS"},
		{"a path out of the tree", "../x", Limits{}, "leaves the repository"},
		{"an absolute path", "/etc/passwd", Limits{}, "leaves the repository"},
		{"a NUL byte", "a\x00b", Limits{}, "NUL byte"},
		{"a folder", "apps", Limits{}, "a folder"},
		{"a large file", "lfs.bin", Limits{FileBytes: 10}, "larger than the 10 bytes"},
		{"large files", "lfs.bin", Limits{TotalBytes: 10}, "allowed together"},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			tree := linkedTree()
			if tt.limits.TotalBytes > 0 {
				tree = memtree.New(map[string]string{"lfs.bin": "more than ten bytes"})
			}
			_, err := New(tree, tt.limits).Read(t.Context(), tt.path)
			var user *Error
			if !errors.As(err, &user) || !strings.Contains(user.Problem, tt.want) {
				t.Errorf("got %v, want an Error with %q", err, tt.want)
			}
		})
	}
}

func TestSaysWhatIsNotThere(t *testing.T) {
	t.Parallel()
	f := New(linkedTree(), Limits{})
	for _, path := range []string{"none", "apps/a/none.yaml", "apps/a/x.yaml/below", "broken", "through", "none/deeper/x"} {
		if _, err := f.Stat(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want fs.ErrNotExist", path, err)
		}
	}
}

func TestLimitsCountDifferentFiles(t *testing.T) {
	t.Parallel()
	f := New(linkedTree(), Limits{Files: 1})
	for range 3 {
		if _, err := f.Read(t.Context(), "apps/a/link.yaml"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Read(t.Context(), "base/z.yaml"); err != nil {
		t.Errorf("the file that the link leads to is the same: %v", err)
	}
	if _, err := f.Read(t.Context(), "apps/a/x.yaml"); err == nil {
		t.Error("a second file was read beyond the limit")
	}
}

// Accesses to missing files are recorded too, so they need a limit.
func TestWhatMayBeLookedForIsBounded(t *testing.T) {
	t.Parallel()
	for reason, f := range map[string]*FS{
		"many names": New(linkedTree(), Limits{Entries: 100}),
		"long names": {limits: Limits{}.OrDefault(), folders: New(linkedTree(), Limits{}).folders, notes: map[string]note{}, noted: maxNoted - 500},
	} {
		looks := 0
		var err error
		for ; looks < 300; looks++ {
			if _, err = f.Stat(t.Context(), "the same again does not count"); err == nil || !errors.Is(err, fs.ErrNotExist) {
				break
			}
			if _, err = f.Stat(t.Context(), fmt.Sprintf("no-%d", looks)); err == nil || !errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
		var user *Error
		if !errors.As(err, &user) || !strings.Contains(user.Problem, "were searched for") || looks < 50 || len(f.Reads()) > 101 {
			t.Errorf("%s: after %d looks and %d reads: %v", reason, looks, len(f.Reads()), err)
		}
	}
}

func TestListShowsWhatLinksLeadTo(t *testing.T) {
	t.Parallel()
	got, err := New(linkedTree(), Limits{}).List(t.Context(), "apps/b")
	if err != nil {
		t.Fatal(err)
	}
	want := []Node{{Name: "link.yaml"}, {Name: "self", Kind: Dir}, {Name: "sub", Kind: Dir}, {Name: "x.yaml"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

// covers: G10 (links make a small tree look endless)
func TestNamesCountEachTimeThatTheyAreListed(t *testing.T) {
	t.Parallel()
	f := New(linkedTree(), Limits{Entries: 30})
	var err error
	folder := "apps/a"
	for range 30 {
		if _, err = f.List(t.Context(), folder); err != nil {
			break
		}
		folder += "/self"
	}
	var user *Error
	if !errors.As(err, &user) || !strings.Contains(user.Problem, "more than 30 files and folders") {
		t.Errorf("got %v", err)
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	f := New(linkedTree(), Limits{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, path := range []string{"apps/a/x.yaml", "deep/one/y.yaml", "none"} {
				_, _ = f.Read(t.Context(), path)
				_, _ = f.List(t.Context(), "apps")
				f.Reads()
			}
		})
	}
	wg.Wait()
}
