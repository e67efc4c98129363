// Package deptest checks that programs do not link forbidden packages.
package deptest

import (
	"os/exec"
	"strings"
	"testing"
)

// Check fails the test for every package that a program links and that forbidden contains, directly or as a
// parent, with the reason.
func Check(t *testing.T, program string, forbidden map[string]string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", program).Output()
	if err != nil {
		t.Fatalf("listing the dependencies of %s: %v", program, err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 50 {
		t.Fatalf("only %d dependencies: the list is not to be trusted", len(deps))
	}
	for _, dep := range deps {
		for prefix, reason := range forbidden {
			if dep == prefix || strings.HasPrefix(dep, prefix+"/") {
				t.Errorf("%s links %s: %s", program, dep, reason)
			}
		}
	}
}
