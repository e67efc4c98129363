package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// memory returns the memory of a process in MiB: "VmRSS" is the current one, "VmHWM" the maximum.
func memory(tb testing.TB, pid int, field string) int {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err != nil {
				tb.Fatalf("reading %q: %v", line, err)
			}
			return kib >> 10
		}
	}
	tb.Fatalf("process %d has no %s", pid, field)
	return 0
}

// filterCombinations are queries that each need their own SQL text, with 1 to 64 labels.
func filterCombinations() []string {
	var out []string
	for i := range 1000 {
		q := url.Values{}
		for label := range 1 + i%64 {
			q.Add("label", fmt.Sprintf("key-%d=value", label))
		}
		set := func(bit int, name, value string) {
			if i>>bit&1 == 1 {
				q.Set(name, value)
			}
		}
		set(5, "q", "text")
		set(6, "sync", "Synced")
		set(7, "health", "Stale")
		set(8, "sync", "OutOfSync")
		set(9, "health", "Current")
		out = append(out, q.Encode())
	}
	return out
}

// list lists deployments, as often as the server allows.
func (d tenantClient) list(t *testing.T, query string) {
	t.Helper()
	testkit.Eventually(t, patience, func(context.Context) error {
		if a := d.ask(t, "GET", "deployments?"+query, nil); a.Code != http.StatusOK {
			return fmt.Errorf("GET deployments?%s answers %d", query, a.Code)
		}
		return nil
	})
}

// TestAViewerDoesNotExhaustMemory sends a thousand lists with different filters and measures the server.
//
// covers: T11
func TestAViewerDoesNotExhaustMemory(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		viewer := s.tenantClient(t, "acme").role(t, "viewer")
		for _, query := range filterCombinations()[:8] {
			viewer.list(t, query)
		}
		before := memory(t, s.PID(), "VmRSS")
		for _, query := range filterCombinations() {
			viewer.list(t, query)
		}
		after := memory(t, s.PID(), "VmRSS")
		const most = 96 // MiB: statements of the connections to the database, and what the garbage collector has not returned
		if after-before > most {
			t.Errorf("the server grew from %d to %d MiB, by more than %d", before, after, most)
		}
		t.Logf("from %d to %d MiB", before, after)
	})
}

// covers: T11
func TestTooManyLabelFiltersAreRefused(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		viewer := s.tenantClient(t, "acme").role(t, "viewer")
		for _, path := range []string{"deployments", "agents"} {
			for labels, want := range map[int]int{64: 200, 65: 422, 988: 422} {
				q := url.Values{}
				for i := range labels {
					q.Add("label", fmt.Sprintf("key-%d=value", i))
				}
				answer := viewer.ask(t, "GET", path+"?"+q.Encode(), nil)
				if answer.Code != want || (want != 200 && !strings.Contains(string(answer.Body), `"query.label"`)) {
					t.Errorf("%s with %d labels: got %d %.300s, want %d that names the parameter", path, labels, answer.Code, answer.Body, want)
				}
			}
		}
	})
}

// memoryGroup creates a control group with a memory limit and returns how to start a command in it.
func memoryGroup(tb testing.TB, bytes int) func(*exec.Cmd) *exec.Cmd {
	tb.Helper()
	const v1, v2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
	root, limit := v1, "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(v1, limit)); err != nil {
		root, limit = v2, "memory.max"
	}
	dir, err := os.MkdirTemp(root, "kedge-test-") //nolint:usetesting // a control group is a folder there and nowhere else
	if err != nil {
		tb.Skipf("control groups cannot be made here: %v", err)
	}
	tb.Cleanup(func() { _ = os.Remove(dir) })
	if err := os.WriteFile(filepath.Join(dir, limit), []byte(strconv.Itoa(bytes)), 0o600); err != nil {
		tb.Skipf("control groups of memory cannot be made here: %v", err)
	}
	return func(cmd *exec.Cmd) *exec.Cmd {
		script := `echo $$ >"$0"/cgroup.procs && exec "$@"`
		return exec.Command("sh", append([]string{"-c", script, dir}, cmd.Args...)...)
	}
}

// TestTheServerKeepsWithinItsControlGroup starts a server with the memory of a small pod.
//
// covers: T11
func TestTheServerKeepsWithinItsControlGroup(t *testing.T) {
	t.Parallel()
	const limit = 1 << 30
	s := &testServer{dir: t.TempDir(), wrap: memoryGroup(t, limit)}
	s.startAt(t, "127.0.0.1:0")
	found := false
	for _, line := range logLines(t, s.Process) {
		if line["msg"] != "memory plan" {
			continue
		}
		found = true
		renders, _ := line["renders"].(map[string]any)
		if line["limit"] != "1024 MiB" || renders["processes"] != 2.0 {
			t.Errorf("the server says %v", line)
		}
	}
	if !found {
		t.Error("the server does not say how it divides its memory")
	}
	// A configuration that does not fit fails at the start, with the cause.
	refused := &testServer{dir: t.TempDir(), wrap: memoryGroup(t, limit), args: []string{"--render-processes", "16", "--render-memory", "1Gi"}}
	_, err := rig.StartServer(t.Context(), rig.ServerConfig{
		Binary: binary(t, "kedge-server"), Listen: "127.0.0.1:0", DataDir: refused.dir, Args: refused.args, Wrap: refused.wrap,
	})
	if err == nil || !strings.Contains(err.Error(), "--render-processes") || !strings.Contains(err.Error(), "1024 MiB") {
		t.Errorf("with 16 renders of 1 GiB: %v", err)
	}
}
