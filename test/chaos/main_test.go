// Package chaos_test drives the real server with random sequences of pushes, requests, crashes, lost responses,
// restored backups, and agents that connect and disconnect, on real databases and a real Git server, and
// compares the clusters with a model of what was requested. It looks for:
//
//   - wrong deletions: an object was deleted that no commit, deletion, or edit removed (invariant 4);
//   - lost updates: after everything has settled, a cluster does not match what was requested;
//   - older states: an agent got a state that it had already left (invariant 3);
//   - foreign rows: a tenant or an agent saw data of another tenant (invariant 7);
//   - parts of another spec: a target got a bundle and a policy, or an agent a target, that no single spec of
//     the deployment has (invariant 10);
//   - states during a freeze: a target got a state while its fleet, tenant, or environment is suspended.
//
// The agents are the real link over clusters in memory: see package agentsim. Objects that move between
// deployments do so on a real API server with the real agent: see TestObjectsThatMoveAreNeverDeleted. Runs of
// processes cannot be repeated exactly, but the steps of a run follow from its seed, which every run prints.
// Some seeds are fixed, and one is new:
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
