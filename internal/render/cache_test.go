package render_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/rendertest"
)

func TestEqualInputsAreBuiltOnce(t *testing.T) {
	t.Parallel()
	builder := &rendertest.Builder{}
	cache := render.NewCache(builder, 0)
	base := render.Request{Path: "overlay", Namespace: "n", Owner: "a"}
	for _, step := range []struct {
		reason  string
		edit    func(*render.Request)
		changes map[string]string
		builds  int
	}{
		{reason: "the first", builds: 1},
		{reason: "again", builds: 1},
		{reason: "another namespace, which Kustomize does not use", edit: func(r *render.Request) { r.Namespace = "m" }, builds: 1},
		{reason: "a commit that touches something else", changes: map[string]string{"plain/a.yaml": configMap("b")}, builds: 1},
		{reason: "another owner", edit: func(r *render.Request) { r.Owner = "b" }, builds: 2},
		{reason: "a commit that touches the base", changes: map[string]string{"base/cm.yaml": configMap("c")}, builds: 3},
		{reason: "and back", builds: 3},
		{reason: "another folder", edit: func(r *render.Request) { r.Path = "base" }, builds: 4},
	} {
		req := base
		if step.edit != nil {
			step.edit(&req)
		}
		if _, err := render.Render(t.Context(), with(step.changes), req, cache); err != nil {
			t.Fatal(err)
		}
		if got := builder.Count(); got != step.builds {
			t.Errorf("%s: %d builds, want %d", step.reason, got, step.builds)
		}
	}
}

func TestBuildsThatAreUnderWayAreShared(t *testing.T) {
	t.Parallel()
	started, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	builder := &rendertest.Builder{Before: func(ctx context.Context, _ render.Job) error {
		once.Do(func() { close(started) })
		select {
		case <-goOn:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	cache := render.NewCache(builder, 0)
	req := render.Request{Path: "overlay", Owner: "a"}
	first, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := render.Render(first, with(nil), req, cache)
		failed <- err
	}()
	<-started
	var others sync.WaitGroup
	digests := make([]string, 8)
	for i := range digests {
		others.Go(func() {
			result, err := render.Render(t.Context(), with(nil), req, cache)
			if err != nil {
				t.Error(err)
				return
			}
			digests[i], _, _ = result.Set.Pack()
		})
	}
	cancel() // cancelling the first must not affect the others
	if err := <-failed; err == nil {
		t.Error("the cancelled caller got a result")
	}
	close(goOn)
	others.Wait()
	if got := builder.Count(); got != 2 {
		t.Errorf("%d builds, want the one that was cancelled and one more", got)
	}
	for _, digest := range digests {
		if digest == "" || digest != digests[0] {
			t.Errorf("digests are %v", digests)
		}
	}
}

// covers: G6 (a thousand deployments of one source are one build)
func TestAThousandEqualInputsAreOneBuild(t *testing.T) {
	t.Parallel()
	const deployments = 1000
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		builder := &rendertest.Builder{Before: func(context.Context, render.Job) error { <-goOn; return nil }}
		cache := render.NewCache(builder, 0)
		renderAll := func(changes map[string]string, path string) *sync.WaitGroup {
			var all sync.WaitGroup
			tree := with(changes)
			for i := range deployments {
				all.Go(func() {
					req := render.Request{Path: path, Owner: "a", Release: "web", Namespace: "n"}
					if path == "overlay" {
						req.Namespace = fmt.Sprintf("n-%d", i) // Kustomize does not use it
					}
					if _, err := render.Render(t.Context(), tree, req, cache); err != nil {
						t.Error(err)
					}
				})
			}
			return &all
		}
		overlays, charts := renderAll(nil, "overlay"), renderAll(nil, "chart")
		synctest.Wait() // all of them are under way
		close(goOn)
		overlays.Wait()
		charts.Wait()
		renderAll(map[string]string{"plain/a.yaml": configMap("b")}, "overlay").Wait()
		if got := builder.Count(); got != 2 {
			t.Errorf("%d deployments of an overlay, as many of a chart and a commit that touches neither are %d builds", deployments, got)
		}
	})
}

// Two deployments must not get the same password, even if they are rendered at the same time.
func TestAVolatileBuildThatIsUnderWayIsNotShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		builder := &rendertest.Builder{Before: func(context.Context, render.Job) error { <-goOn; return nil }}
		cache := render.NewCache(builder, 0)
		contents := make([]string, 5)
		var all sync.WaitGroup
		for i := range contents {
			all.Go(func() {
				result, err := render.Render(t.Context(), with(nil), render.Request{Path: "random", Owner: "a", Release: "web"}, cache)
				if err != nil {
					t.Error(err)
					return
				}
				contents[i] = string(result.Set.Encode())
			})
		}
		synctest.Wait() // one builds, the others wait for it
		close(goOn)
		all.Wait()
		slices.Sort(contents)
		if got := slices.Compact(contents); len(got) != 5 || builder.Count() != 5 {
			t.Errorf("5 renders are %d builds of %q", builder.Count(), got)
		}
	})
}

func TestAFailedBuildIsNotKept(t *testing.T) {
	t.Parallel()
	fail := true
	builder := &rendertest.Builder{Before: func(context.Context, render.Job) error {
		if fail {
			return errLost
		}
		return nil
	}}
	cache := render.NewCache(builder, 0)
	req := render.Request{Path: "overlay"}
	if _, err := render.Render(t.Context(), with(nil), req, cache); err == nil {
		t.Fatal("no error")
	}
	fail = false
	if _, err := render.Render(t.Context(), with(nil), req, cache); err != nil {
		t.Fatal(err)
	}
}

// An owner that fills the cache evicts its own entries, not those of others.
func TestTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	builder := &rendertest.Builder{}
	cache := render.NewCache(builder, 400_000)
	build := func(owner string, i int) {
		t.Helper()
		req := render.Request{Path: "chart", Owner: owner, Release: "web", Helm: fleet.Helm{Values: fmt.Sprintf(`{"greeting":%q}`, strings.Repeat("x", 20_000)+fmt.Sprint(i))}}
		if _, err := render.Render(t.Context(), with(nil), req, cache); err != nil {
			t.Fatal(err)
		}
	}
	build("small", 0)
	for i := range 30 {
		build("large", i)
	}
	before := builder.Count()
	build("small", 0)
	build("large", 29)
	if got := builder.Count() - before; got != 0 {
		t.Errorf("%d kept builds had to be built again", got)
	}
	build("large", 0)
	if got := builder.Count() - before; got != 1 {
		t.Error("nothing was evicted")
	}
}
