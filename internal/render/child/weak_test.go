//go:build linux

package child_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/internal/render/sandbox"
)

// dying is a program that ends at its first start, as if memory were short, and is hostile at later ones.
func dying(t *testing.T) string {
	t.Helper()
	path, mark := filepath.Join(t.TempDir(), "dying"), filepath.Join(t.TempDir(), "mark")
	script := fmt.Sprintf("#!/bin/sh\nif mkdir %s; then exit 1; fi 2>/dev/null\nexec %s \"$@\"\n", mark, program(t, hostilePkg))
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// A mechanism that was not available once is tried again by the next child, even of the same owner, and the
// status shows the current state.
func TestMechanismsThatFailOnceAreTriedAgain(t *testing.T) {
	t.Parallel()
	best, err := newPool(t, child.Config{}).Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if reason, lacks := best.Lacks(sandbox.Namespaces); lacks {
		t.Skipf("there are no namespaces here: %s", reason)
	}
	for reason, first := range map[string]func(*child.Pool) error{
		"a probe": func(p *child.Pool) error { _, err := p.Probe(t.Context()); return err },
		"a build": func(p *child.Pool) error { _, err := p.Build(t.Context(), job("a", "who")); return err },
	} {
		pool := newPool(t, child.Config{Program: dying(t)})
		if err := first(pool); err != nil {
			t.Fatal(err)
		}
		if status, _ := pool.Status(); status.Problem() == best.Problem() {
			t.Fatalf("%s: the first child was not confined less", reason)
		}
		if _, err := pool.Build(t.Context(), job("a", "who")); err != nil {
			t.Fatal(err)
		}
		if status, _ := pool.Status(); status.Problem() != best.Problem() {
			t.Errorf("%s: the second child lacks %q", reason, status.Problem())
		}
	}
}

// A required mechanism blocks renders only while it is not available.
func TestRequiredMechanismsAreTriedAgain(t *testing.T) {
	t.Parallel()
	if best, err := newPool(t, child.Config{}).Probe(t.Context()); err != nil || len(best.Missing) > 0 {
		t.Skipf("not every mechanism is available here: %s, %v", best.Problem(), err)
	}
	pool := newPool(t, child.Config{Program: dying(t), Require: sandbox.All()})
	if _, err := pool.Build(t.Context(), job("a", "who")); err == nil || pool.Failure() == nil {
		t.Fatalf("it was rendered without a required mechanism, and the failure is %v", pool.Failure())
	}
	if _, err := pool.Build(t.Context(), job("a", "who")); err != nil || pool.Failure() != nil {
		t.Errorf("got %v, and the failure is %v", err, pool.Failure())
	}
}
