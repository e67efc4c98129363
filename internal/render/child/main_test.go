package child_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/internal/render/sandbox"
	"github.com/kedge-dev/kedge/internal/testkit"
)

func TestMain(m *testing.M) {
	if program := os.Getenv(parentEnv); program != "" {
		beParent(program)
	}
	if program := os.Getenv(proberEnv); program != "" {
		beProber(program)
	}
	code := m.Run()
	// All processes of a pool must end with the tests.
	if err := goleak.Find(goleak.IgnoreTopFunction("os/signal.loop")); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "child:", err)
		code = 1
	}
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir)
	}
	os.Exit(code)
}

// parentEnv makes the test program a parent of hostile children, for a test that kills it.
const parentEnv = "KEDGE_TEST_PARENT"

// beParent has one idle child and one that hangs, and never ends.
func beParent(program string) {
	pool, err := child.NewPool(child.Config{Program: program, Limits: child.Limits{Time: time.Hour}})
	if err == nil {
		_, err = pool.Build(context.Background(), job("idle", "who"))
	}
	if err == nil {
		_, err = pool.Build(context.Background(), job("busy", "spin"))
	}
	fmt.Fprintln(os.Stderr, "the parent ends:", err)
	os.Exit(1)
}

// proberEnv makes the test program report how a child is confined, for a test that removes a mechanism.
const proberEnv = "KEDGE_TEST_PROBER"

func beProber(program string) {
	pool, err := child.NewPool(child.Config{Program: program})
	if err == nil {
		var status sandbox.Status
		status, err = pool.Probe(context.Background())
		fmt.Println(status.Active, status.Problem())
		pool.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// programs are built once per test run: children are always built without cgo, but a test with the race
// detector is not.
var programs struct {
	mu    sync.Mutex
	dir   string
	built map[string]error
}

// program returns the path of a program, built from a package of this module.
func program(tb testing.TB, pkg string) string {
	tb.Helper()
	name := filepath.Base(pkg)
	if dir := os.Getenv("KEDGE_BIN"); dir != "" && filepath.Dir(pkg) == "cmd" {
		return filepath.Join(dir, name)
	}
	programs.mu.Lock()
	defer programs.mu.Unlock()
	if programs.built == nil {
		dir, err := os.MkdirTemp("", "kedge-child-") //nolint:usetesting // all tests share it; TestMain removes it
		if err != nil {
			tb.Fatal(err)
		}
		programs.dir, programs.built = dir, map[string]error{}
	}
	path := filepath.Join(programs.dir, name)
	if err, done := programs.built[name]; done {
		if err != nil {
			tb.Fatal(err)
		}
		return path
	}
	programs.built[name] = build(path, pkg)
	if err := programs.built[name]; err != nil {
		tb.Fatal(err)
	}
	return path
}

func build(path, pkg string) error {
	root, err := testkit.ModuleRoot()
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-o", path, "./"+pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return nil
}

const hostilePkg = "internal/render/child/hostile"

// names are the names of the children of pools, so that a test can find its own.
var names sync.Map

// newPool returns a pool with hostile children, unless cfg has another program.
func newPool(tb testing.TB, cfg child.Config) *child.Pool {
	tb.Helper()
	if cfg.Program == "" {
		cfg.Program = program(tb, hostilePkg)
	}
	name := filepath.Join(tb.TempDir(), "renderer")
	if err := os.Symlink(cfg.Program, name); err != nil {
		tb.Fatal(err)
	}
	cfg.Program = name
	pool, err := child.NewPool(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	names.Store(pool, name)
	tb.Cleanup(pool.Close)
	return pool
}

// job asks a hostile child for something.
func job(owner, what string) render.Job {
	return render.Job{Owner: owner, Tree: memtree.New(nil), Kind: fleet.SourceHelm, Path: what}
}

// text returns the text of the only object of a result.
func text(tb testing.TB, built *render.Built, err error) string {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	if len(built.Objects) != 1 {
		tb.Fatalf("got %d objects, want one", len(built.Objects))
	}
	data, _ := built.Objects[0].Content["data"].(map[string]any)
	out, _ := data["text"].(string)
	return out
}

// brokenTree cannot be read.
type brokenTree struct{ filetree.Tree }

var errDisk = errors.New("disk on fire")

func (brokenTree) List(context.Context, string) ([]filetree.Entry, error) { return nil, errDisk }

// closedTree has files that may not be read.
type closedTree struct{ filetree.Tree }

func (closedTree) Read(_ context.Context, e filetree.Entry, _ int64) ([]byte, error) {
	return nil, &filetree.Error{Path: e.Name, Problem: "in a submodule that may not be read"}
}
