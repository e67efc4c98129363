package treefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
)

func TestReadsNameWhatARenderDependsOn(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason string
		look   func(ctx context.Context, f *FS)
		want   []string
	}{
		{"nothing", func(context.Context, *FS) {}, nil},
		{"a file", func(ctx context.Context, f *FS) { _, _ = f.Read(ctx, "base/z.yaml") }, []string{"f base/z.yaml"}},
		{"a file that is not there", func(ctx context.Context, f *FS) { _, _ = f.Read(ctx, "base/no") }, []string{"f base/no"}},
		{"every link on the path", func(ctx context.Context, f *FS) { _, _ = f.Read(ctx, "deep/one/y.yaml") }, []string{
			"f apps/a/sub/y.yaml", "f apps/b", "f deep", "f deep/one", "f deep/two",
		}},
		{"a link that is refused", func(ctx context.Context, f *FS) { _, _ = f.Read(ctx, "out") }, []string{"f out"}},
		{"the names in a folder", func(ctx context.Context, f *FS) { _, _ = f.List(ctx, "apps/a") }, []string{
			"f apps", "f apps/a/link.yaml", "f apps/a/self", "f base/z.yaml", "l apps/a",
		}},
		{"a folder with one below that was not read", func(ctx context.Context, f *FS) {
			_, _ = f.List(ctx, "apps/a")
			_, _ = f.Read(ctx, "apps/a/x.yaml")
		}, []string{"f apps", "f apps/a/link.yaml", "f apps/a/self", "f apps/a/x.yaml", "f base/z.yaml", "l apps/a"}},
		{"a folder of which everything was read", func(ctx context.Context, f *FS) {
			_, _ = f.List(ctx, "base")
			_, _ = f.Read(ctx, "base/z.yaml")
			_, _ = f.Read(ctx, "base/no")
		}, []string{"t base"}},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			f := New(linkedTree(), Limits{})
			tt.look(t.Context(), f)
			if diff := cmp.Diff(tt.want, f.Reads()); diff != "" {
				t.Errorf("reads (-want +got):\n%s", diff)
			}
		})
	}
}

// With fewer names it would not be refused.
func TestAFolderWithTooManyNamesIsRead(t *testing.T) {
	t.Parallel()
	f := New(memtree.New(map[string]string{"d/a": "1", "d/b": "1"}), Limits{Entries: 1})
	if _, err := f.List(t.Context(), "d"); err == nil {
		t.Fatal("it was listed")
	}
	if diff := cmp.Diff([]string{"l d"}, f.Reads()); diff != "" {
		t.Errorf("reads (-want +got):\n%s", diff)
	}
}

func TestAFolderThatALinkOnlyPassesThroughIsRead(t *testing.T) {
	t.Parallel()
	before := memtree.New(map[string]string{"a": memtree.Link("b/../c"), "b/x": "1", "c": "2", "d/e/x": "3", "d/c": "4"})
	after := memtree.New(map[string]string{"a": memtree.Link("b/../c"), "b": memtree.Link("d/e"), "c": "2", "d/e/x": "3", "d/c": "4"})
	f := New(before, Limits{})
	if data, err := f.Read(t.Context(), "a"); err != nil || string(data) != "2" {
		t.Fatalf("read %q, %v", data, err)
	}
	was, err := Fingerprint(t.Context(), before, f.Reads())
	if err != nil {
		t.Fatal(err)
	}
	if is, err := Fingerprint(t.Context(), after, f.Reads()); err != nil || is == was {
		t.Errorf("the link leads elsewhere now, and the fingerprint is the same (%v)", err)
	}
}

func TestFingerprintSees(t *testing.T) {
	t.Parallel()
	before := map[string]string{"d/file": "1", "d/sub/x": "1", "d/link": memtree.Link("file")}
	tests := []struct {
		reason, edited, content string
		changed                 []string // of the reads below
	}{
		{"another content", "d/file", "2", []string{"f d/file", "t d"}},
		{"a content deeper", "d/sub/x", "2", []string{"t d"}},
		{"a new name", "d/new", "1", []string{"f d/new", "l d", "t d"}},
		{"a file that becomes a folder", "d/file/x", "1", []string{"f d/file", "l d", "t d"}},
		{"a folder that becomes a file", "d/sub", "1", []string{"f d/sub", "l d", "t d"}},
		{"a file that becomes a link", "d/file", memtree.Link("1"), []string{"f d/file", "l d", "t d"}},
		{"a link that leads elsewhere", "d/link", memtree.Link("sub"), []string{"f d/link", "t d"}},
		{"something else", "other", "1", nil},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			after := maps.Clone(before)
			put(after, tt.edited, tt.content)
			var changed []string
			for _, read := range []string{"f d/file", "f d/link", "f d/new", "f d/sub", "l d", "t d"} {
				was, err := Fingerprint(t.Context(), memtree.New(before), []string{read})
				if err != nil {
					t.Fatal(err)
				}
				if is, err := Fingerprint(t.Context(), memtree.New(after), []string{read}); err != nil || is != was {
					changed = append(changed, read)
				}
			}
			if diff := cmp.Diff(tt.changed, changed); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFingerprintReadsNoFile(t *testing.T) {
	t.Parallel()
	tree := linkedTree()
	if _, err := Fingerprint(t.Context(), tree, []string{"f base/z.yaml", "l apps", "t apps/a"}); err != nil {
		t.Fatal(err)
	}
	if tree.Reads() != 0 {
		t.Errorf("%d files were read", tree.Reads())
	}
}

func TestFingerprintRefusesWhatNoRenderReads(t *testing.T) {
	t.Parallel()
	for _, read := range []string{"", "f", "f ", "x apps", "f ../x", "f /etc", "t a//b", "l a\x00b", "f ./a"} {
		if got, err := Fingerprint(t.Context(), linkedTree(), []string{read}); !errors.Is(err, errRead) {
			t.Errorf("%q: got %q, %v", read, got, err)
		}
	}
}

var (
	someNames = rapid.SampledFrom([]string{"a", "b", "c"})
	somePath  = rapid.Custom(func(t *rapid.T) string {
		return path.Join(rapid.SliceOfN(someNames, 1, 4).Draw(t, "names")...)
	})
	someContent = rapid.OneOf(
		rapid.SampledFrom([]string{"1", "2", "3"}),
		rapid.Custom(func(t *rapid.T) string {
			return memtree.Link(strings.Repeat("../", rapid.IntRange(0, 2).Draw(t, "up")) + somePath.Draw(t, "target"))
		}),
	)
)

// put adds a file and removes nodes that would be both a file and a folder.
func put(files map[string]string, name, content string) {
	maps.DeleteFunc(files, func(other, _ string) bool {
		return strings.HasPrefix(other, name+"/") || strings.HasPrefix(name, other+"/")
	})
	files[name] = content
}

// look does one access and returns the result.
func look(ctx context.Context, f *FS, action int, name string) string {
	var seen any
	var err error
	switch action {
	case 0:
		seen, err = f.Stat(ctx, name)
	case 1:
		seen, err = f.Read(ctx, name)
	case 2:
		seen, err = f.List(ctx, name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "nothing"
	}
	return fmt.Sprint(seen, err)
}

// model computes what a read finds, from the flat list of files alone.
func model(files map[string]string, read string) string {
	word, name, _ := strings.Cut(read, " ")
	if content, ok := files[name]; ok {
		return "file " + content
	}
	for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
		if content, ok := files[parent]; ok && strings.HasPrefix(content, memtree.Symlink) {
			return "behind a link " + content
		}
	}
	kinds, below := map[string]string{}, ""
	for _, other := range slices.Sorted(maps.Keys(files)) {
		rest, ok := strings.CutPrefix("/"+other, strings.TrimSuffix("/"+name, "/.")+"/")
		if !ok {
			continue
		}
		below += fmt.Sprintf("%q %q\n", rest, files[other])
		first, _, deeper := strings.Cut(rest, "/")
		kinds[first] = fmt.Sprint(deeper, strings.HasPrefix(files[other], memtree.Symlink))
		if deeper {
			kinds[first] = "folder"
		}
	}
	switch {
	case len(kinds) == 0 && name != ".":
		return "nothing"
	case word == readNames:
		return fmt.Sprint(kinds)
	case word == readTree:
		return below
	}
	return "folder"
}

// A fingerprint changes if and only if accessed content changes, and only then may the same accesses return
// something else.
//
// covers: G6
func TestFingerprintChangesWithWhatWasRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		before := map[string]string{}
		for range rapid.IntRange(0, 8).Draw(t, "files") {
			put(before, somePath.Draw(t, "path"), someContent.Draw(t, "content"))
		}
		after := maps.Clone(before)
		for range rapid.IntRange(0, 3).Draw(t, "edits") {
			name := somePath.Draw(t, "edited")
			if rapid.Bool().Draw(t, "delete") {
				delete(after, name)
			} else {
				put(after, name, someContent.Draw(t, "new content"))
			}
		}
		first, second := New(memtree.New(before), Limits{}), New(memtree.New(after), Limits{})
		same := true
		for range rapid.IntRange(1, 4).Draw(t, "looks") {
			action, name := rapid.IntRange(0, 2).Draw(t, "action"), somePath.Draw(t, "looked at")
			same = look(ctx, first, action, name) == look(ctx, second, action, name) && same
		}
		reads := first.Reads()
		was, err := Fingerprint(ctx, memtree.New(before), reads)
		if err != nil {
			t.Fatal(err)
		}
		is, err := Fingerprint(ctx, memtree.New(after), reads)
		if err != nil {
			t.Fatal(err)
		}
		if was == is && !same {
			t.Fatalf("the fingerprint of %q is the same, but the content is not", reads)
		}
		changed := slices.ContainsFunc(reads, func(read string) bool { return model(before, read) != model(after, read) })
		if changed != (was != is) {
			t.Fatalf("%q: something that was read changed: %t; the fingerprint changed: %t", reads, changed, was != is)
		}
	})
}

// FuzzResolve shows that no path and no link leads out of the tree, or for ever.
func FuzzResolve(f *testing.F) {
	for _, seed := range [][3]string{
		{"l/x", "../b", "."}, {"l", "l", "l"}, {"a/l/m", "../../..", "l"}, {"a/../../b", "/etc", "x\x00"}, {"l/m/l/m", "./m/../l", "../a/l"}, {"", "//", "..."},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, name, one, two string) {
		tree := memtree.New(map[string]string{"a/l": memtree.Link(one), "a/m": memtree.Link(two), "l": memtree.Link(one), "b/x": "inside", "a/b/x": "inside"})
		files := New(tree, Limits{})
		data, err := files.Read(t.Context(), name)
		var user *Error
		switch {
		case err == nil && string(data) != "inside":
			t.Fatalf("%q read %q", name, data)
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.As(err, &user):
			t.Fatalf("%q: not a user's mistake: %v", name, err)
		}
		if _, err := Fingerprint(t.Context(), tree, files.Reads()); err != nil {
			t.Fatalf("%q: %v", files.Reads(), err)
		}
	})
}

// FuzzReads checks that arbitrary reads are either refused or looked up.
func FuzzReads(f *testing.F) {
	for _, seed := range []string{"f a", "l .", "t b/x", "t ../..", "f  ", "q x", "l a/l/..", "f a\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, read string) {
		tree := memtree.New(map[string]string{"a/l": memtree.Link("../b"), "b/x": "1"})
		got, err := Fingerprint(t.Context(), tree, []string{read})
		if (err == nil) == (got == "") {
			t.Fatalf("got %q and %v", got, err)
		}
	})
}
