// Package e2e_test runs the real programs against real control planes and real Git servers, as black boxes: it
// tests what a user can see. Each test has its own server and shares one cluster with the others, in its own
// namespaces.
package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kedge-dev/kedge/internal/testkit"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // of the client; it may not be set concurrently
	testkit.Main(m)
}

var built struct {
	once sync.Once
	dir  string
	err  error
}

// binary returns the path of one of our programs: from KEDGE_BIN, or built once for this run.
func binary(tb testing.TB, name string) string {
	tb.Helper()
	if dir := os.Getenv("KEDGE_BIN"); dir != "" {
		return filepath.Join(dir, name)
	}
	built.once.Do(func() { built.dir, built.err = build() })
	if built.err != nil {
		tb.Fatal(built.err)
	}
	return filepath.Join(built.dir, name)
}

func build() (string, error) {
	root, err := testkit.ModuleRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin")
	cmd := exec.Command("go", "build", "-o", dir+"/", "./cmd/...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the programs: %w\n%s", err, out)
	}
	return dir, nil
}
