package render_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
)

func configMap(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %q}\n", name)
}

// covers: G7, G11
func TestRender(t *testing.T) {
	t.Parallel()
	tree := memtree.New(map[string]string{
		"apps/a/one.yaml": configMap("one") + "---\n" + configMap("two"),
		"apps/a/list.yml": "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: elsewhere}}]\n",
		"apps/a/x.json":   `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}`,
		"apps/a/note.txt": "not: [read",
		"apps/b/bad.yaml": "not: [read",
	})
	req := render.Request{Path: "apps/a", Namespace: "default"}
	result, err := render.Render(t.Context(), tree, req, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range result.Set.Objects() {
		got = append(got, o.Ref.String()+" from "+o.Source)
	}
	want := []string{
		"ConfigMap one from apps/a/one.yaml (document 1)", "ConfigMap two from apps/a/one.yaml (document 2)",
		"Namespace x from apps/a/x.json", "Secret elsewhere/s from apps/a/list.yml (item 1)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if result.Files != 3 {
		t.Errorf("%d files were read, want 3", result.Files)
	}
	if _, ok := result.Set.Get(fleet.ObjectRef{Kind: "ConfigMap", Namespace: "default", Name: "one"}); !ok {
		t.Error("an object without a namespace is not found in the namespace of the deployment")
	}
	key, err := render.Key(t.Context(), tree, req, nil)
	if err != nil || key != result.Key {
		t.Errorf("the key is %s, %v, and %s of the result", key, err, result.Key)
	}
}

// covers: G6 (a commit that touches nothing relevant is seen without reading)
func TestKeyChangesWithWhatIsRead(t *testing.T) {
	t.Parallel()
	base := map[string]string{"apps/a/x.yaml": configMap("x"), "apps/b/y.yaml": configMap("y"), "apps/a/note.txt": "1"}
	req := render.Request{Path: "apps/a", Namespace: "n"}
	keyOf := func(changes map[string]string, req render.Request) string {
		files := map[string]string{}
		for _, m := range []map[string]string{base, changes} {
			for name, content := range m {
				files[name] = content
			}
		}
		tree := memtree.New(files)
		key, err := render.Key(t.Context(), tree, req, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tree.Reads() > 0 {
			t.Error("files were read for a key")
		}
		return key
	}
	want := keyOf(nil, req)
	same := map[string]string{
		"another folder":          keyOf(map[string]string{"apps/b/y.yaml": configMap("z"), "apps/c/new.yaml": "new"}, req),
		"a file outside the glob": keyOf(map[string]string{"apps/a/note.txt": "2"}, req),
		"a folder with a slash":   keyOf(nil, render.Request{Path: "/apps/a/", Namespace: "n"}),
		"how long it may take":    keyOf(nil, render.Request{Path: "apps/a", Namespace: "n", Limits: render.Limits{Time: time.Hour}}),
	}
	for reason, got := range same {
		if got != want {
			t.Errorf("%s changed the key", reason)
		}
	}
	other := map[string]string{
		"content":     keyOf(map[string]string{"apps/a/x.yaml": configMap("z")}, req),
		"a new file":  keyOf(map[string]string{"apps/a/n.yaml": configMap("n")}, req),
		"namespace":   keyOf(nil, render.Request{Path: "apps/a", Namespace: "m"}),
		"allow empty": keyOf(nil, render.Request{Path: "apps/a", Namespace: "n", AllowEmpty: true}),
		"a limit":     keyOf(nil, render.Request{Path: "apps/a", Namespace: "n", Limits: render.Limits{Objects: 5}}),
		"a glob":      keyOf(nil, render.Request{Path: "apps/a", Namespace: "n", Globs: []string{"*.none"}}),
	}
	for reason, got := range other {
		if got == want {
			t.Errorf("%s did not change the key", reason)
		}
	}
}

// covers: A12 (one bad document refuses the whole), G9, G10 (files of very many values)
func TestMistakesAreTheUsers(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"bad/a.yaml": configMap("a"), "bad/b.yaml": "not: [yaml",
		"twice/a.yaml": configMap("x"), "twice/b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: def}\n",
		"lfs/a.yaml":      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n",
		"empty/readme.md": "", "comments/a.yaml": "# nothing\n",
		"big/a.yaml": configMap("a") + "# " + strings.Repeat("x", 1000), "big/b.yaml": configMap("b"),
		"wide/a.yaml": configMap("a"), "wide/b.yaml": configMap("b") + "x: [" + strings.Repeat("x,", 600_000) + "x]\n",
	}
	for i := range 5 {
		files[fmt.Sprintf("wider/%d.json", i)] = fmt.Sprintf(`{"apiVersion":"v1","kind":"X","metadata":{"name":"x%d"},"x":[%s1]}`, i, strings.Repeat("1,", 450_000))
	}
	tests := []struct {
		reason string
		req    render.Request
		want   []string // all in the message
	}{
		{"broken YAML", render.Request{Path: "bad"}, []string{"bad/b.yaml", "not valid YAML"}},
		{"a duplicate", render.Request{Path: "twice", Namespace: "def"}, []string{"ConfigMap def/x", "twice/a.yaml", "twice/b.yaml"}},
		{"no file", render.Request{Path: "empty"}, []string{"empty: no file matches", "allowEmpty"}},
		{"no object", render.Request{Path: "comments"}, []string{"comments: 1 files match but contain no object"}},
		{"a pointer to Git LFS", render.Request{Path: "lfs"}, []string{"lfs/a.yaml: a pointer to a file in Git LFS", "git lfs migrate export"}},
		{"no folder", render.Request{Path: "none"}, []string{"none: there is no such folder"}},
		{"a large file", render.Request{Path: "big", Limits: render.Limits{FileBytes: 500}}, []string{"big/a.yaml: larger than the 500 bytes"}},
		{"large files", render.Request{Path: "big", Limits: render.Limits{TotalBytes: 1080}}, []string{"big/b.yaml: with it the files are larger"}},
		{"too little time", render.Request{Path: "big", Limits: render.Limits{Time: 1}}, []string{"longer than the limit of 1ns", "--render-timeout"}},
		{"a file of many values", render.Request{Path: "wide"}, []string{"wide/b.yaml", "too many values", "split it"}},
		{"files of many values together", render.Request{Path: "wider", Limits: render.Limits{Time: 10 * time.Minute}}, []string{"wider/4.json: with it there are more than the 2000000 values", "several deployments"}},
		{"many objects", render.Request{Path: "big", Limits: render.Limits{Objects: 1}}, []string{"big/b.yaml: with it there are more than the 1 objects"}},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			result, err := render.Render(t.Context(), memtree.New(files), tt.req, nil)
			if err == nil || !render.IsUserError(err) {
				t.Fatalf("got %v, %v, want a user error", result, err)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func TestAnEmptyResultCanBeAllowed(t *testing.T) {
	t.Parallel()
	tree := memtree.New(map[string]string{"empty/readme.md": ""})
	result, err := render.Render(t.Context(), tree, render.Request{Path: "empty", AllowEmpty: true}, nil)
	if err != nil || result.Set.Len() != 0 {
		t.Errorf("got %v, %v", result, err)
	}
}

// slowTree has to fetch files first.
type slowTree struct{ filetree.Tree }

func (t slowTree) List(ctx context.Context, path string) ([]filetree.Entry, error) {
	<-time.After(time.Hour) // of a clock that only the test sees
	return t.Tree.List(ctx, path)
}

func (t slowTree) Read(ctx context.Context, e filetree.Entry, limit int64) ([]byte, error) {
	<-time.After(time.Hour)
	return t.Tree.Read(ctx, e, limit)
}

func TestFetchingIsNoTimeOfARender(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tree := slowTree{memtree.New(map[string]string{"a.yaml": configMap("a"), "b/b.yaml": configMap("b")})}
		if _, err := render.Render(t.Context(), tree, render.Request{}, nil); err != nil {
			t.Error(err)
		}
	})
}

type brokenTree struct{ filetree.Tree }

var errDisk = errors.New("disk on fire")

func (brokenTree) Read(context.Context, filetree.Entry, int64) ([]byte, error) { return nil, errDisk }

func TestAFaultIsNotTheUsers(t *testing.T) {
	t.Parallel()
	tree := brokenTree{memtree.New(map[string]string{"a.yaml": configMap("a")})}
	_, err := render.Render(t.Context(), tree, render.Request{}, nil)
	if !errors.Is(err, errDisk) || render.IsUserError(err) {
		t.Errorf("got %v", err)
	}
}
