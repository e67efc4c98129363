package corpus

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/filetree/disktree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// childPool renders in processes of the real program, built without cgo.
func childPool(t *testing.T) *child.Pool {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the program")
	}
	root, err := testkit.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "kedge")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/kedge")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	pool, err := child.NewPool(child.Config{Program: program})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// The confinement of a child does not change the result of a library.
//
// covers: G8
func TestChildGivesTheSame(t *testing.T) {
	pool := childPool(t)
	build := func(t *testing.T, dir string, job render.Job) answer {
		tree, err := disktree.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tree.Close() })
		job.Tree, job.Owner = tree, "corpus"
		built, err := pool.Build(t.Context(), job)
		if err != nil {
			if !render.IsUserError(err) {
				t.Errorf("not a user's mistake: %v", err)
			}
			return answerOf(nil, err)
		}
		return answerOf(withoutWaves(built.Objects), nil)
	}
	for _, c := range loadCases(t, "kustomize") {
		t.Run(c.name, func(t *testing.T) {
			dir := c.write(t)
			got := build(t, dir, render.Job{Kind: fleet.SourceKustomize, Path: c.settings["path"]})
			if diff := cmp.Diff(runKustomize(t, dir, c.settings["path"]), got, cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("answers (-here +child):\n%s", diff)
			}
		})
	}
	for _, c := range loadCases(t, "helm") {
		t.Run(c.name, func(t *testing.T) {
			dir := c.write(t)
			req, _ := c.helmRequest(t, dir)
			got := build(t, dir, render.Job{Kind: fleet.SourceHelm, Path: req.Path, Namespace: req.Namespace, Helm: req.Helm, Capabilities: req.Capabilities})
			if diff := cmp.Diff(runHelm(t, dir, req), got, cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("answers (-here +child):\n%s", diff)
			}
		})
	}
}
