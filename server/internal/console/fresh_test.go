package console

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDistIsFresh bundles the sources again and compares the result with the committed one.
func TestDistIsFresh(t *testing.T) {
	t.Parallel()
	// Read here although the bundler reads them too: go test repeats a cached result unless a
	// file changed that the test itself has read.
	tool := filepath.Join("..", "..", "..", "tools", "console")
	readTree(t, os.DirFS("web"))
	readTree(t, os.DirFS(tool))
	dir := t.TempDir()
	bundler := filepath.Join(dir, "bundler")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bundler, ".")
	build.Dir = tool
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("building the bundler: %v\n%s", err, out)
		}
		t.Skipf("the bundler cannot be built here, so dist cannot be compared: %v\n%s", err, out)
	}
	out := filepath.Join(dir, "dist")
	if msg, err := exec.CommandContext(t.Context(), bundler, "-web", "web", "-out", out).CombinedOutput(); err != nil {
		t.Fatalf("bundling: %v\n%s", err, msg)
	}
	if diff := cmp.Diff(readTree(t, os.DirFS(out)), readTree(t, os.DirFS("dist"))); diff != "" {
		t.Errorf("dist does not match the sources; run go generate ./server/internal/console (-sources +dist):\n%.2000s", diff)
	}
}

func readTree(t *testing.T, tree fs.FS) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(tree, name)
		files[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatalf("reading a bundle: %v", err)
	}
	return files
}
