package sandbox

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// openFiles is enough for the pipes to the parent and the poller of the Go runtime.
const openFiles = 24

// limit limits the resources of this process.
func limit(o Options) error {
	reserved, err := reservedMemory()
	if err != nil {
		return err
	}
	for _, l := range []struct {
		name     string
		resource int
		most     uint64
	}{
		{"core", unix.RLIMIT_CORE, 0},
		{"fsize", unix.RLIMIT_FSIZE, 0},
		{"memlock", unix.RLIMIT_MEMLOCK, 0},
		{"msgqueue", unix.RLIMIT_MSGQUEUE, 0},
		{"nofile", unix.RLIMIT_NOFILE, openFiles},
		{"cpu", unix.RLIMIT_CPU, uint64((o.CPU + time.Second - 1) / time.Second)},
		// Memory that Go reserves without using it counts as address space and not as data. The data limit is
		// the intended one; the address space limit covers other memory, such as shared memory.
		{"data", unix.RLIMIT_DATA, uint64(o.Memory)},
		{"as", unix.RLIMIT_AS, reserved + uint64(o.Memory)},
	} {
		if l.most == 0 && (l.resource == unix.RLIMIT_CPU || l.resource == unix.RLIMIT_DATA) {
			continue
		}
		if err := unix.Prlimit(0, l.resource, &unix.Rlimit{Cur: l.most, Max: l.most}, nil); err != nil {
			return fmt.Errorf("setting the limit %s: %w", l.name, err)
		}
	}
	return nil
}

// reservedMemory returns the address space that this process has already.
func reservedMemory() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("reading the size of the process: %w", err)
	}
	var pages uint64
	if _, err := fmt.Sscan(string(text), &pages); err != nil {
		return 0, fmt.Errorf("parsing the size of the process: %w", err)
	}
	return pages * uint64(os.Getpagesize()), nil
}
