package agent

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

// Not parallel: the limit is global to the process.
func TestMemoryLimitFollowsTheContainer(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	tests := []struct {
		name, content, variable string
		want                    int64
		reason                  string
	}{
		{"limited", "536870912\n", "", 536870912 / 10 * 9, "90 % of the limit of the container"},
		{"unlimited", "max\n", "", math.MaxInt64, "there is no limit"},
		{"set by hand", "536870912\n", "1GiB", math.MaxInt64, "the environment variable has precedence"},
		{"no file", "", "", math.MaxInt64, "it is not a container"},
		{"nonsense", "-5\n", "", math.MaxInt64, "a limit that is not valid would stop the agent"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", tt.variable)
			debug.SetMemoryLimit(math.MaxInt64)
			file := filepath.Join(t.TempDir(), "memory.max")
			if tt.content != "" {
				if err := os.WriteFile(file, []byte(tt.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			limitMemory(slog.New(slog.DiscardHandler), file)
			if got := debug.SetMemoryLimit(-1); got != tt.want {
				t.Errorf("limit = %d, want %d: %s", got, tt.want, tt.reason)
			}
		})
	}
}

// Not parallel: the percentage is global to the process.
func TestGCPercentIsSet(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	t.Setenv("GOGC", "200") // the runtime has read it at the start
	setGCPercent()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("percentage = %d, want the environment variable to have precedence", got)
	}
	t.Setenv("GOGC", "")
	setGCPercent()
	if got := debug.SetGCPercent(100); got != gcPercent {
		t.Errorf("percentage = %d, want %d", got, gcPercent)
	}
}
