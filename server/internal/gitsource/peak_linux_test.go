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

// watchMemory polls the processes with this data size limit and returns the peak memory of one of them in KiB. It
// ignores the memory of a process before it became git.
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

// residentPeak returns the peak memory of a process in KiB; 0 if the process has ended.
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
