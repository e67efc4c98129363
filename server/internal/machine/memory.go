// Package machine determines the memory of the machine or of the control group of this process. It changes
// nothing.
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

// Memory is a memory limit and its source.
type Memory struct {
	Bytes  int64
	Source string // for people: a file name, or the machine
}

// ErrUnknown is returned when the memory limit cannot be determined.
var ErrUnknown = errors.New("the operating system does not report the amount of memory")

// Limit returns the lowest memory limit of this process: of its control group or a parent group (version 1 or 2),
// or the memory of the machine.
func Limit() (Memory, error) { return limitIn("/") }

// limitIn is Limit with another root folder.
func limitIn(root string) (Memory, error) {
	lowest := Memory{Bytes: total(filepath.Join(root, "proc/meminfo")), Source: "the memory of the machine"}
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup")) // without the file there is no limit
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
				lowest = lowest.lower(root, mount, fields[2], "memory.max")
			}
		case strings.Contains(","+fields[1]+",", ",memory,"):
			lowest = lowest.lower(root, "sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes")
		}
	}
	if lowest.Bytes <= 0 {
		return Memory{}, ErrUnknown
	}
	return lowest, nil
}

// lower returns the lowest of m and the limits of a control group and its parents. In a container the group may
// be mounted as the root, although its path differs.
func (m Memory) lower(root, mount, group, file string) Memory {
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		name := path.Join("/", mount, at, file)
		text, err := os.ReadFile(filepath.Join(root, name)) //nolint:gosec // the kernel names the group
		if err == nil {
			// "max" and numbers above the memory of the machine mean no limit.
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

// total returns the memory of the machine, or 0 if it is unknown.
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
