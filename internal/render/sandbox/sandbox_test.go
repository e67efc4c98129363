package sandbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/render/sandbox"
)

func TestOptionsComeBack(t *testing.T) {
	t.Parallel()
	want := sandbox.Options{
		Memory: 1 << 30, CPU: time.Minute, Off: []sandbox.Mechanism{sandbox.Seccomp},
		Isolation: sandbox.Isolation{User: true, Network: true, Problem: "no"},
	}
	got, err := sandbox.ParseOptions(want.Argument())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := sandbox.ParseOptions("--help"); err == nil {
		t.Error("another argument is parsed as options")
	}
}

func TestProblemSaysWhatIsMissingAndWhatItMeans(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason string
		status sandbox.Status
		want   []string // all in it; none when there is no problem
	}{
		{"all there", sandbox.Status{Active: sandbox.All()}, nil},
		{"one mechanism missing", sandbox.Status{Missing: []sandbox.Missing{{Mechanism: sandbox.Namespaces, Reason: "operation not permitted"}}},
			[]string{"namespaces (operation not permitted)", "still block files and network"}},
		{"the network is reachable", sandbox.Status{Missing: []sandbox.Missing{{Mechanism: sandbox.Seccomp, Reason: "old kernel"}}, Open: []string{"files", "network"}},
			[]string{"seccomp (old kernel)", "could reach files and network"}},
	}
	for _, tt := range tests {
		got := tt.status.Problem()
		if (got == "") != (tt.want == nil) {
			t.Errorf("%s: %q", tt.reason, got)
		}
		for _, part := range tt.want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q does not say %q", tt.reason, got, part)
			}
		}
	}
}
