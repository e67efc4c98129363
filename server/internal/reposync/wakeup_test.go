package reposync

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
)

func TestWakeupsMerge(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	t.Parallel()
	a := wakeup{check: true, refs: map[string]bool{"a": true}, at: now.Add(time.Second)}
	b := wakeup{pushed: true, rewound: true, allRuns: true, refs: map[string]bool{"b": true}, at: now, runs: map[fleet.DeploymentID]bool{"d": true}}
	want := wakeup{
		check: true, pushed: true, rewound: true, allRuns: true, at: now,
		refs: map[string]bool{"a": true, "b": true}, runs: map[fleet.DeploymentID]bool{"d": true},
	}
	for _, got := range []wakeup{a.merge(b), b.merge(a)} {
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(wakeup{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if len(a.refs) != 1 || len(b.refs) != 1 {
		t.Error("merging changed what was merged")
	}
	for revision, push := range map[string]string{"": "refs/heads/x", "main": "refs/heads/main", "v1": "refs/tags/v1", "refs/x": "refs/x", "any": ""} {
		if !pushOf(push, now).concerns(revision) {
			t.Errorf("a push of %q does not concern %q", push, revision)
		}
	}
	if pushOf("refs/heads/other", now).concerns("main") || (wakeup{check: true}).concerns("main") {
		t.Error("a push of another branch concerns main")
	}
}
