package agent

import (
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// cgroupLimit is where a container finds how much memory it may use.
const cgroupLimit = "/sys/fs/cgroup/memory.max"

// gcPercent has the garbage collected when it is half of what is alive. An agent runs beside other people's
// workloads: with a thousand deployments that is 12 MiB less (B2), and no CPU time that could be measured.
const gcPercent = 50

// collectOften sets gcPercent. GOGC is the operator's word and wins.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// limitMemory makes the garbage collector work harder before the kernel ends the process. What is
// left beside the heap is a tenth. GOMEMLIMIT is the operator's word and wins.
func limitMemory(log *slog.Logger, file string) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit, ok := readMemoryLimit(file)
	if !ok {
		return
	}
	debug.SetMemoryLimit(limit / 10 * 9)
	log.Info("memory is limited", "containerMiB", limit>>20, "heapMiB", limit/10*9>>20)
}

// readMemoryLimit returns false when there is no limit, or none to be known.
func readMemoryLimit(file string) (int64, bool) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return 0, false // no container, or one without cgroup v2
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return limit, err == nil && limit > 0 // "max" is no limit
}
