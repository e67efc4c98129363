//go:build unix

package child

import (
	"runtime"
	"syscall"
	"time"
)

// usage is what this process has taken so far.
func usage() (cpu time.Duration, memory int64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	unit := int64(1 << 10)
	if runtime.GOOS == "darwin" {
		unit = 1
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), int64(u.Maxrss) * unit //nolint:unconvert // it has 32 bits on some architectures
}
