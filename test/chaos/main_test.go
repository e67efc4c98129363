// Package chaos_test drives the real server with random interleavings of pushes, requests, crashes,
// lost answers, restored backups and agents that come and go, on real databases and a real Git server,
// and holds what the clusters become against a model of what was asked for. It looks for:
//
//   - wrong deletions: an object went away that no commit, deletion or edit has given up (invariant 4);
//   - lost updates: after everything has come to rest, a cluster does not hold what was asked for;
//   - older states: an agent was given what it had already left behind (invariant 3);
//   - foreign rows: a tenant or an agent was shown something of another tenant (invariant 7);
//   - parts of another spec: a target was given a bundle and a policy, or an agent a target, that no one spec of
//     the deployment has (invariant 10);
//   - what was sent in a freeze: a target was given something while its fleet, tenant or environment is held.
//
// The agents are the real link over clusters in memory: see package agentsim. Objects that move between deployments do
// so on a real API server with the real agent: see TestObjectsThatMoveAreNeverDeleted. Processes cannot be made
// to repeat themselves exactly, but the steps of a run follow from its seed, which every run prints. Some seeds are
// always the same, and one is new:
//
//	KEDGE_CHAOS_STEPS=400 go test -run TestChaos -v ./test/chaos -seed=42
package chaos_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/postgres"
)

var pg postgres.Server

func TestMain(m *testing.M) { testkit.Main(m, &pg) }

var built struct {
	once   sync.Once
	binary string
	err    error
}

// server returns the path of kedge-server: from KEDGE_BIN, or built once for this run.
func server(tb testing.TB) string {
	tb.Helper()
	if dir := os.Getenv("KEDGE_BIN"); dir != "" {
		return filepath.Join(dir, "kedge-server")
	}
	built.once.Do(func() {
		root, err := testkit.ModuleRoot()
		built.binary, built.err = filepath.Join(root, "bin", "kedge-server"), err
		if err == nil {
			built.err = build(tb, built.binary)
		}
	})
	if built.err != nil {
		tb.Fatal(built.err)
	}
	return built.binary
}

// build builds the server as it is shipped.
func build(tb testing.TB, output string, flags ...string) error {
	tb.Helper()
	root, err := testkit.ModuleRoot()
	if err != nil {
		return err
	}
	args := append([]string{"build", "-o", output}, flags...)
	cmd := exec.CommandContext(tb.Context(), "go", append(args, "./cmd/kedge-server")...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the server: %w\n%s", err, out)
	}
	return nil
}

// number reads a number from the environment, or has a default.
func number(tb testing.TB, name string, otherwise uint64) uint64 {
	tb.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return n
}
