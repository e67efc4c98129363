package reposync

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
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
}

func TestPushesConcernTheirRevisions(t *testing.T) {
	t.Parallel()
	push := func(ref string) wakeup { return wakeupOf(store.Wake{Reason: store.WakePush, Ref: ref}, time.Now()) }
	for revision, ref := range map[string]string{"": "refs/heads/x", "main": "refs/heads/main", "v1": "refs/tags/v1", "refs/x": "refs/x", "any": ""} {
		if !push(ref).concerns(revision) {
			t.Errorf("a push of %q does not concern %q", ref, revision)
		}
	}
	if push("refs/heads/other").concerns("main") || (wakeup{check: true}).concerns("main") {
		t.Error("a push of another branch concerns main")
	}
}

func TestTheReasonOfAWakeDecidesWhatIsRead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	push := func(ref string) wakeup { return wakeup{pushed: true, refs: map[string]bool{ref: true}, at: now} }
	everything := wakeup{check: true, rewound: true}
	tests := map[string]struct {
		wake store.Wake
		want wakeup
	}{
		"a push of a ref":                          {store.Wake{Reason: store.WakePush, Ref: "refs/heads/main"}, push("refs/heads/main")},
		"a push that names no ref":                 {store.Wake{Reason: store.WakePush}, push("")},
		"a refresh by a user":                      {store.Wake{Reason: store.WakeRefresh}, everything},
		"a target that is ahead of the server":     {store.Wake{Reason: store.WakeTargetAhead}, everything},
		"a variant that is not rendered":           {store.Wake{Reason: store.WakeVariantMissing}, everything},
		"a pending spec to evaluate again":         {store.Wake{Reason: store.WakePendingSpec}, everything},
		"a configuration of an agent to read":      {store.Wake{Reason: store.WakeAgentConfig}, everything},
		"a reason that names a ref and is no push": {store.Wake{Reason: store.WakeTargetAhead, Ref: "refs/heads/main"}, everything},
	}
	for name, tt := range tests {
		if diff := cmp.Diff(tt.want, wakeupOf(tt.wake, now), cmp.AllowUnexported(wakeup{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
