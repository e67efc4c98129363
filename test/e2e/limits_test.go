package e2e_test

import (
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
)

// memory is the memory of a process in MiB: "VmRSS" is what it has now, "VmHWM" the most that it ever had.
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

// filterCombinations are queries that each need a text of SQL of their own, with 1 to 64 labels.
func filterCombinations() []string {
	var out []string
	for i := range 2000 {
		q := url.Values{}
		for label := range 1 + i%64 {
			q.Add("label", fmt.Sprintf("key-%d=value", label))
		}
		set := func(bit int, name, value string) {
			if i>>bit&1 == 1 {
				q.Set(name, value)
			}
		}
		set(6, "q", "text")
		set(7, "sync", "Synced")
		set(8, "health", "Stale")
		set(9, "sync", "OutOfSync")
		set(10, "health", "Current")
		out = append(out, q.Encode())
	}
	return out
}

// TestAViewerDoesNotExhaustMemory sends thousands of lists with different filters and measures the server.
//
// covers: T11
func TestAViewerDoesNotExhaustMemory(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		viewer := s.desk(t, "acme").role(t, "viewer")
		for _, query := range filterCombinations()[:8] {
			viewer.want(t, 200, "GET", "deployments?"+query, nil)
		}
		before := memory(t, s.PID(), "VmRSS")
		for _, query := range filterCombinations() {
			viewer.want(t, 200, "GET", "deployments?"+query, nil)
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
		viewer := s.desk(t, "acme").role(t, "viewer")
		for _, path := range []string{"deployments", "agents"} {
			for labels, want := range map[int]int{64: 200, 65: 422, 988: 422, 5000: 422} {
				q := url.Values{}
				for i := range labels {
					q.Add("label", fmt.Sprintf("key-%d=value", i))
				}
				answer := viewer.ask(t, "GET", path+"?"+q.Encode(), nil)
				if answer.Code != want || (want != 200 && !strings.Contains(string(answer.Body), `"label"`)) {
					t.Errorf("%s with %d labels: got %d %.300s, want %d that names the parameter", path, labels, answer.Code, answer.Body, want)
				}
			}
		}
	})
}
