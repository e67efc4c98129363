package agent

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

// Not parallel: the limit is of the process.
func TestMemoryLimitFollowsTheContainer(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	tests := []struct {
		name, content, variable string
		want                    int64
		reason                  string
	}{
		{"limited", "536870912\n", "", 536870912 / 10 * 9, "nine tenths of what the container has"},
		{"unlimited", "max\n", "", math.MaxInt64, "there is nothing to keep to"},
		{"set by hand", "536870912\n", "1GiB", math.MaxInt64, "the operator's word wins"},
		{"no file", "", "", math.MaxInt64, "it is no container"},
		{"nonsense", "-5\n", "", math.MaxInt64, "a limit that is none would stop the agent"},
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

// Not parallel: how often is of the process.
func TestGarbageIsCollectedOften(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	t.Setenv("GOGC", "200") // it was read when the program began
	collectOften()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("collected at %d %%, want the operator's word to win", got)
	}
	t.Setenv("GOGC", "")
	collectOften()
	if got := debug.SetGCPercent(100); got != gcPercent {
		t.Errorf("collected at %d %%, want %d", got, gcPercent)
	}
}
