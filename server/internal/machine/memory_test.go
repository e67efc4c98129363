package machine

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// covers: T11
func TestLowestLimitWins(t *testing.T) {
	t.Parallel()
	const meminfo = "MemTotal:       16777216 kB\nMemFree:         1 kB\n"
	tests := map[string]struct {
		files  map[string]string
		bytes  int64
		source string
	}{
		"no control groups": {
			files: map[string]string{"proc/meminfo": meminfo},
			bytes: 16 << 30, source: "the memory of the machine",
		},
		"version 2 in a container": {
			files: map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2147483648\n"},
			bytes: 2 << 30, source: "/sys/fs/cgroup/memory.max",
		},
		"version 2 without a limit": {
			files: map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"},
			bytes: 16 << 30, source: "the memory of the machine",
		},
		"version 2, a group above": {
			files: map[string]string{
				"proc/meminfo": meminfo, "proc/self/cgroup": "0::/kubepods/pod1/kedge\n",
				"sys/fs/cgroup/kubepods/pod1/kedge/memory.max": "max\n", "sys/fs/cgroup/kubepods/pod1/memory.max": "1073741824\n",
				"sys/fs/cgroup/kubepods/memory.max": "8589934592\n",
			},
			bytes: 1 << 30, source: "/sys/fs/cgroup/kubepods/pod1/memory.max",
		},
		"version 1": {
			files: map[string]string{
				"proc/meminfo": meminfo, "proc/self/cgroup": "9:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n",
				"sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "536870912\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			},
			bytes: 512 << 20, source: "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes",
		},
		"version 1 in a container": {
			files: map[string]string{
				"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/docker/abc\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n",
			},
			bytes: 512 << 20, source: "/sys/fs/cgroup/memory/memory.limit_in_bytes",
		},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for file, text := range c.files {
				at := filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := limitIn(root)
			if want := (Memory{c.bytes, c.source}); err != nil || got != want {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		})
	}
	if _, err := limitIn(t.TempDir()); !errors.Is(err, ErrUnknown) {
		t.Errorf("without any file: got error %v", err)
	}
}
