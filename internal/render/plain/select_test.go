package plain

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
)

func paths(files []File) []string {
	var out []string
	for _, f := range files {
		out = append(out, f.Path)
	}
	return out
}

// covers: G7
func TestSelect(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"root.yaml": "", "README.md": "", "apps/a/x.yaml": "", "apps/a/y.yml": "", "apps/a/z.json": "", "apps/a/.hidden.yaml": "",
		"apps/a/.git-stuff/x.yaml": "", "apps/a/deep/er/x.yaml": "", "apps/b/x.yaml": "", "apps/b/xy.yaml": "", "apps/[odd]/x.yaml": "",
		"apps/a/sub": memtree.Submodule, "apps/a/link": memtree.Symlink,
	}
	tests := []struct {
		reason string
		folder string
		globs  []string
		want   []string
	}{
		{"default glob, whole repository, dot-files but no dot-folders", ".", nil, []string{
			"apps/[odd]/x.yaml", "apps/a/.hidden.yaml", "apps/a/deep/er/x.yaml", "apps/a/x.yaml", "apps/a/y.yml", "apps/a/z.json", "apps/b/x.yaml", "apps/b/xy.yaml", "root.yaml",
		}},
		{"default glob in a folder", "/apps/b/", nil, []string{"apps/b/x.yaml", "apps/b/xy.yaml"}},
		{"a star matches one level", "apps", []string{"*/x.yaml"}, []string{"apps/[odd]/x.yaml", "apps/a/x.yaml", "apps/b/x.yaml"}},
		{"a leading slash is the folder of the source", "apps", []string{"/a/*.yaml"}, []string{"apps/a/.hidden.yaml", "apps/a/x.yaml"}},
		{"two stars match no level too", "apps/a", []string{"**/x.yaml"}, []string{"apps/a/deep/er/x.yaml", "apps/a/x.yaml"}},
		{"a question mark", "apps/b", []string{"x?.yaml"}, []string{"apps/b/xy.yaml"}},
		{"a class", "apps", []string{"[ac]/[w-y].yaml"}, []string{"apps/a/x.yaml"}},
		{"a negated class", "apps", []string{"[!a]/x.yaml"}, []string{"apps/b/x.yaml"}},
		{"alternatives", "apps", []string{"{a,b}/*.{yml,json}"}, []string{"apps/a/y.yml", "apps/a/z.json"}},
		{"alternatives with slashes", ".", []string{"apps/{a/deep/er,b}/x.yaml"}, []string{"apps/a/deep/er/x.yaml", "apps/b/x.yaml"}},
		{"escapes", "apps", []string{`\[odd\]/x.yaml`}, []string{"apps/[odd]/x.yaml"}},
		{"a file by its name", ".", []string{"root.yaml"}, []string{"root.yaml"}},
		{"several globs", ".", []string{"root.*", "apps/b/x.yaml"}, []string{"apps/b/x.yaml", "root.yaml"}},
		{"a dot-folder as the folder of the source", "apps/a/.git-stuff", nil, []string{"apps/a/.git-stuff/x.yaml"}},
		{"nothing matches", ".", []string{"*.toml"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			got, _, err := Select(t.Context(), memtree.New(files), tt.folder, tt.globs, Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, paths(got)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

// covers: G7, G9 (overlapping globs, missing directory, number of paths and files)
func TestSelectNamesMistakes(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"apps/a/x.yaml": "", "apps/a/y.yaml": "", "link": memtree.Symlink, "apps/l.yaml": memtree.Symlink, "mod/sub.yaml": memtree.Submodule,
	}
	tests := []struct {
		reason string
		folder string
		globs  []string
		limits Limits
		want   Error
	}{
		{"two globs for one file", "apps/a", []string{"*.yaml", "x.*"}, Limits{}, Error{Path: "apps/a/x.yaml", Problem: "both match"}},
		{"the same glob twice", "apps/a", []string{"x.yaml", "/x.yaml"}, Limits{}, Error{Path: "apps/a/x.yaml", Problem: "both match"}},
		{"no such folder", "apps/none", nil, Limits{}, Error{Path: "apps/none", Problem: "no such folder"}},
		{"no such folder in a glob", "apps", []string{"none/*.yaml"}, Limits{}, Error{Path: "apps/none", Problem: "no such folder"}},
		{"a file as folder", "apps/a/x.yaml", nil, Limits{}, Error{Path: "apps/a/x.yaml", Problem: "a file, not a folder"}},
		{"a link as folder", "link", nil, Limits{}, Error{Path: "link", Problem: "a symbolic link"}},
		{"a link that matches", "apps", []string{"*.yaml"}, Limits{}, Error{Path: "apps/l.yaml", Problem: "a symbolic link"}},
		{"a submodule that matches", "mod", nil, Limits{}, Error{Path: "mod/sub.yaml", Problem: "a submodule"}},
		{"a submodule as folder", "mod/sub.yaml", nil, Limits{}, Error{Path: "mod/sub.yaml", Problem: "a submodule"}},
		{"out of the repository", "../x", nil, Limits{}, Error{Path: "../x", Problem: "leaves the repository"}},
		{"out of the folder", "apps", []string{"../*.yaml"}, Limits{}, Error{Path: "../*.yaml", Problem: "may not contain"}},
		{"an open class", "apps", []string{"[a"}, Limits{}, Error{Path: "[a", Problem: "not a valid glob"}},
		{"an open brace", "apps", []string{"{a"}, Limits{}, Error{Path: "{a", Problem: "not a valid glob"}},
		{"an empty glob", "apps", []string{"/"}, Limits{}, Error{Path: "/", Problem: "matches nothing"}},
		{"a dot-folder in a glob", "apps", []string{".a/*.yaml"}, Limits{}, Error{Path: ".a/*.yaml", Problem: "start with a dot"}},
		{"too many alternatives", "apps", []string{strings.Repeat("{a,b}", 9)}, Limits{}, Error{Path: strings.Repeat("{a,b}", 9), Problem: "alternatives"}},
		{"too many globs", "apps", []string{"a", "b"}, Limits{Globs: 1}, Error{Path: "", Problem: "2 globs"}},
		{"too many files", "apps/a", nil, Limits{Files: 1}, Error{Path: "apps/a", Problem: "more than 1 files match"}},
		{"too many files to search", "apps/a", nil, Limits{Entries: 1}, Error{Path: "apps/a", Problem: "more than 1 files and folders"}},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			selected, _, err := Select(t.Context(), memtree.New(files), tt.folder, tt.globs, tt.limits)
			var got *Error
			if !errors.As(err, &got) {
				t.Fatalf("got %v, %v, want an Error", paths(selected), err)
			}
			if got.Path != tt.want.Path || !strings.Contains(got.Problem, tt.want.Problem) {
				t.Errorf("got %#v, want %#v", *got, tt.want)
			}
		})
	}
}

func TestSelectListsOnlyWhatCanMatch(t *testing.T) {
	t.Parallel()
	files := map[string]string{"apps/07/deep/x.yaml": "", "apps/07/x.yaml": "", "apps/08/x.yaml": "", "other/deep/x.yaml": ""}
	tests := []struct {
		folder string
		globs  []string
		want   []string
	}{
		{"apps/07", nil, []string{"apps/07", "apps/07/deep"}},
		{"apps/07", []string{"*.yaml"}, []string{"apps/07"}},
		{".", []string{"apps/07/**/*.yaml"}, []string{".", "apps", "apps/07", "apps/07/deep"}},
		{".", []string{"apps/*/x.yaml"}, []string{".", "apps", "apps/07", "apps/08"}},
	}
	for _, tt := range tests {
		tree := memtree.New(files)
		if _, _, err := Select(t.Context(), tree, tt.folder, tt.globs, Limits{}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, tree.Listed()); diff != "" {
			t.Errorf("%s %v (-want +got):\n%s", tt.folder, tt.globs, diff)
		}
	}
}

// FuzzGlob checks that no folder with a match is skipped, and that no glob is slow.
func FuzzGlob(f *testing.F) {
	for _, seed := range [][2]string{
		{"**/*.{yaml,yml,json}", "a/b/c.yaml"}, {"a/**", "a/b"}, {"{a/b,c}/*", "a/b/x"}, {"[a-c]/?", "b/x"}, {`a\/b`, "a/b"}, {"**/**/x", "x"},
		{"[/]/a", "//a"}, {"{a,{b,c}/d}/**/e", "b/d/e"}, {"a**/b", "ab/b"}, {"/**", "a"}, {"**/a/**/b", "a/a/b/b"}, {"[!a]b/c", "x/b/c"},
		{"{**}/x", "a/b/x"}, {"{*}*/x", "a/b/x"}, {"{}**/x", "a/b/x"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if name = path.Clean(name); strings.HasPrefix(name, "/") || strings.HasPrefix(name, "..") || len(name) > 200 {
			return
		}
		g, err := compileGlob(pattern)
		if err != nil {
			var user *Error
			if !errors.As(err, &user) {
				t.Fatalf("not a user's mistake: %v", err)
			}
			return
		}
		matched, err := doublestar.Match(g.pattern, name)
		if err != nil {
			t.Fatalf("%q passed and is bad: %v", pattern, err)
		}
		if matched != g.matches(name) {
			t.Errorf("%q: %t for %q with and %t without validation", pattern, matched, name, g.matches(name))
		}
		if !matched {
			return
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if !g.reaches(dir) {
				t.Errorf("%q matches %q but would skip %q", pattern, name, dir)
			}
		}
	})
}
