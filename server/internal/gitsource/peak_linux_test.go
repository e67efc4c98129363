package gitsource

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// watchMemory looks at the processes that may have this many bytes of data, again and again, and returns how many KiB of memory
// one of them had at most. What a process had before it became git does not count.
func watchMemory(t *testing.T, limit int64) (peak func() int64) {
	t.Helper()
	bound := fmt.Sprintf("Max data size             %d ", limit)
	stop := make(chan struct{})
	var watching sync.WaitGroup
	var most int64
	watching.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			files, _ := filepath.Glob("/proc/[0-9]*/limits")
			for _, file := range files {
				if limits, err := os.ReadFile(file); err == nil && strings.Contains(string(limits), bound) {
					most = max(most, residentPeak(filepath.Dir(file)))
				}
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	return sync.OnceValue(func() int64 {
		close(stop)
		watching.Wait()
		return most
	})
}

// residentPeak is the most memory that a process has had, in KiB; 0 when it is gone.
func residentPeak(dir string) int64 {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(text)[0], 10, 64)
			return kib
		}
	}
	return 0
}
