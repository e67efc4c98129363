package render_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/rendertest"
)

// broken is a tree with a mistake of each kind, by folder.
func broken(changes map[string]string) *memtree.Tree {
	files := map[string]string{
		"missing/kustomization.yaml": "resources: [cm.yaml]\n",
		"parse/kustomization.yaml":   "resources: [cm.yaml]\n",
		"parse/cm.yaml":              "not: [yaml",
		"chart/Chart.yaml":           "apiVersion: v2\nname: chart\nversion: 1.0.0\n",
		"chart/templates/cm.yaml":    "{{ fail .Values.why }}",
		"chart/values.yaml":          "why: because\n",
		"empty/kustomization.yaml":   "resources: []\n",
		"one/kustomization.yaml":     "resources: [cm.yaml]\n",
		"one/cm.yaml":                configMap("${name}"),
	}
	for name, content := range changes {
		files[name] = content
	}
	return memtree.New(files)
}

// covers: G6 (what is broken is not built again for a commit that touches nothing of it)
func TestAFailedBuildSaysWhatItRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason string
		req    render.Request
		mended map[string]string
	}{
		{"a file that is not there", render.Request{Path: "missing"}, map[string]string{"missing/cm.yaml": configMap("a")}},
		{"a file that cannot be parsed", render.Request{Path: "parse"}, map[string]string{"parse/cm.yaml": configMap("a")}},
		{"a template that fails", render.Request{Path: "chart", Release: "web"}, map[string]string{"chart/templates/cm.yaml": configMap("a")}},
		{"values that cause a failure", render.Request{Path: "chart", Release: "web"}, map[string]string{"chart/values.yaml": "why: not\n"}},
		{"no object", render.Request{Path: "empty"}, map[string]string{"empty/kustomization.yaml": "resources: [../one]\n"}},
		{"an undefined variable", render.Request{Path: "one", Variables: map[string]string{"x": ""}}, map[string]string{"one/cm.yaml": configMap("a")}},
		{"too many objects", render.Request{Path: "one", Limits: render.Limits{Objects: -1}}, map[string]string{"one/cm.yaml": "# nothing\n"}},
		{"it is of another kind", render.Request{Path: "parse"}, map[string]string{"parse/Chart.yaml": "apiVersion: v2\n"}},
		{"a kind that is stated", render.Request{Path: "parse", Kind: fleet.SourceKustomize}, map[string]string{"parse/cm.yaml": configMap("a")}},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			_, err := render.Render(t.Context(), broken(nil), tt.req, render.NewCache(&rendertest.Builder{}, 0))
			var failed *render.Failed
			if !errors.As(err, &failed) || !render.IsUserError(err) || failed.Error() != err.Error() {
				t.Fatalf("got %v, want a user error with its read set", err)
			}
			if detected := slices.Contains(failed.Reads, "f "+tt.req.Path+"/Chart.yaml"); detected != (tt.req.Kind == fleet.SourceDetected) {
				t.Errorf("the files for the detection of its kind are among %q: %t", failed.Reads, detected)
			}
			keyOf := func(changes map[string]string) string {
				key, err := render.Key(t.Context(), broken(changes), tt.req, failed.Reads)
				if err != nil && !render.IsUserError(err) {
					t.Fatal(err)
				}
				return key
			}
			was := keyOf(nil)
			if was == "" || keyOf(map[string]string{"other/file": "", "missing/other": ""}) != was {
				t.Errorf("a commit that touches something else changes the key of %q", failed.Reads)
			}
			if keyOf(tt.mended) == was {
				t.Errorf("it was mended, which does not change the key of %q", failed.Reads)
			}
		})
	}
}

func TestWhoWaitsForAFailedBuildLearnsWhatItRead(t *testing.T) {
	t.Parallel()
	started, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	builder := &rendertest.Builder{Before: func(context.Context, render.Job) error {
		once.Do(func() { close(started) })
		<-goOn
		return nil
	}}
	cache := render.NewCache(builder, 0)
	var all sync.WaitGroup
	reads := make([][]string, 4)
	for i := range reads {
		all.Go(func() {
			_, err := render.Render(t.Context(), broken(nil), render.Request{Path: "parse"}, cache)
			var failed *render.Failed
			if errors.As(err, &failed) {
				reads[i] = failed.Reads
			}
		})
	}
	<-started
	close(goOn)
	all.Wait()
	for _, got := range reads {
		if len(got) == 0 || !slices.Equal(got, reads[0]) {
			t.Errorf("the callers got %q", reads)
		}
	}
}

func TestWhatWasReadDoesNotExplainEveryFailure(t *testing.T) {
	t.Parallel()
	for reason, err := range map[string]error{
		"a fault":                       errLost,
		"a tree that is said elsewhere": &filetree.Error{Path: "vendor", Problem: "a submodule that may not be read"},
	} {
		builder := &rendertest.Builder{Before: func(context.Context, render.Job) error { return render.Fail(err, []string{"f a"}) }}
		_, got := render.Render(t.Context(), broken(nil), render.Request{Path: "parse"}, builder)
		var failed *render.Failed
		if !errors.Is(got, err) || errors.As(got, &failed) {
			t.Errorf("%s: got %v with reads %v", reason, got, failed)
		}
	}
}
