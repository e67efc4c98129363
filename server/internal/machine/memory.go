// Package machine says how much memory there is for the server and what it starts. It changes nothing.
package machine

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory is a limit and what sets it.
type Memory struct {
	Bytes  int64
	Source string // for people: a file, or the machine
}

// ErrUnknown says that this system does not tell how much memory there is.
var ErrUnknown = errors.New("this system does not say how much memory it has")

// Limit returns the lowest limit that holds for this process: that of its control group or of one above it
// (version 1 or 2), or the memory of the machine.
func Limit() (Memory, error) { return limitBelow("/") }

// limitBelow is Limit for a system whose root folder is elsewhere.
func limitBelow(root string) (Memory, error) {
	least := Memory{Bytes: total(filepath.Join(root, "proc/meminfo")), Source: "the memory of the machine"}
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup")) // without any there is no limit
	lines := bufio.NewScanner(bytes.NewReader(groups))
	for lines.Scan() {
		// "0::/path" is version 2; "4:memory:/path" is version 1.
		fields := strings.SplitN(lines.Text(), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch {
		case fields[0] == "0" && fields[1] == "":
			for _, mount := range []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"} {
				least = least.lower(root, mount, fields[2], "memory.max")
			}
		case strings.Contains(","+fields[1]+",", ",memory,"):
			least = least.lower(root, "sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes")
		}
	}
	if least.Bytes <= 0 {
		return Memory{}, ErrUnknown
	}
	return least, nil
}

// lower returns the lowest of m and the limits of a group and all above it. In a container the group may
// be shown as the root of the mount, whatever its path says.
func (m Memory) lower(root, mount, group, file string) Memory {
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		name := path.Join("/", mount, at, file)
		text, err := os.ReadFile(filepath.Join(root, name)) //nolint:gosec // the kernel names the group
		if err == nil {
			// "max" and numbers beyond the machine's memory mean none.
			n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && n > 0 && (m.Bytes <= 0 || n < m.Bytes) {
				m = Memory{Bytes: n, Source: name}
			}
		}
		if at == "/" {
			return m
		}
	}
}

// total reads how much memory the machine has; 0 when that is not known.
func total(meminfo string) int64 {
	text, err := os.ReadFile(meminfo)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, "MemTotal:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return 0
		}
		return kib << 10
	}
	return 0
}
