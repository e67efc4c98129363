package rollout

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// situation is one combination of the inputs of decide.
type situation struct {
	tombstone, detached, agentGone, labelMissing bool
	observed                                     string // none, older, equal, rewound, ahead
	resolved, chosen, idle, broken               bool
	bundle                                       string // unknown, empty, same, other
	edited                                       string // one of edits
	holdPrune                                    bool
	restored                                     bool // the desired state is from before the restore of a backup
	firstOfEdit                                  bool // the render is the first of an edited source
	consented                                    bool // the desired state has the consent of an edit, and a confirmation
}

var (
	had = fleet.Version{Epoch: 2, Generation: 7}
	now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// edits are changes of the policy of a deployment by a user, by name; the nil ones are done elsewhere.
var edits = map[string]func(*fleet.Policy){
	"": nil, "namespace": nil, "pruneOn": nil,
	"prune":          func(p *fleet.Policy) { p.Prune = false },
	"adopt":          func(p *fleet.Policy) { p.Adopt = true },
	"allowEmpty":     func(p *fleet.Policy) { p.AllowEmpty = true },
	"manual":         func(p *fleet.Policy) { p.Manual = true },
	"pruneOnDetach":  func(p *fleet.Policy) { p.PruneOnDetach = true },
	"drift":          func(p *fleet.Policy) { p.Drift = fleet.DriftReport },
	"serviceAccount": func(p *fleet.Policy) { p.ServiceAccount = "a/b" },
}

func (c situation) inputs() (*Reconciler, fleet.Deployment, fleet.Target, choice) {
	d := fleet.Deployment{ID: "dep", TenantID: "ten", Namespace: "n", Policy: fleet.Policy{Prune: true}}
	t := fleet.Target{
		ID: "tgt", TenantID: "ten", DeploymentID: "dep", AgentID: "agt", Variant: "v",
		Desired: fleet.Desired{Version: had, Digest: "old", Commit: "c1", Namespace: "n", Policy: d.Policy, HoldPrune: c.holdPrune, Consent: c.consented},
	}
	if c.consented {
		t.Desired.Confirmed = []string{"ConfigMap n/a"}
	}
	t.Desired.Tombstone = c.tombstone
	if c.detached {
		t.DetachedAt, t.Desired.Detached = now, true
	}
	if c.agentGone {
		t.AgentID = ""
	}
	if c.labelMissing {
		t.Variant, t.VariantError = fleet.NoVariant, "no label"
	}
	t.Observed = map[string]fleet.Observed{
		"none":    {},
		"older":   {Version: fleet.Version{Epoch: 2, Generation: 6}, Sync: fleet.SyncSynced},
		"equal":   {Version: had, Sync: fleet.SyncSynced},
		"rewound": {Version: had, Sync: fleet.SyncRewound},
		"ahead":   {Version: fleet.Version{Epoch: 3, Generation: 41}, Sync: fleet.SyncRewound},
	}[c.observed]
	switch edit := edits[c.edited]; {
	case c.edited == "namespace":
		d.Namespace = "m"
	case c.edited == "pruneOn":
		t.Desired.Policy.Prune = false
	case edit != nil:
		edit(&d.Policy)
	}
	w := choice{chosen: c.chosen, idle: c.idle, bundles: map[string]fleet.Rendered{}}
	switch c.bundle {
	case "empty":
		w.bundles[t.Variant] = fleet.Rendered{}
	case "same":
		w.bundles[t.Variant] = fleet.Rendered{Digest: "old", Commit: "c2"}
	case "other":
		w.bundles[t.Variant] = fleet.Rendered{Digest: "new", Commit: "c2"}
	}
	epoch := had.Epoch
	if c.restored {
		epoch = 3
	}
	st := &Reconciler{planner: &Planner{epoch: epoch}, resolved: c.resolved, broken: map[fleet.DeploymentID]map[string]bool{"dep": {t.Variant: c.broken}}, edits: map[fleet.DeploymentID]bool{"dep": c.firstOfEdit}}
	return st, d, t, w
}

// expect computes the result of decide in another way: "" if nothing may change, otherwise the digest.
func (c situation) expect() (digest string, hold bool) {
	if c.tombstone || c.detached || c.agentGone || c.labelMissing {
		return "", false
	}
	digest = "old" // nothing chosen: what it has
	if c.chosen {
		digest = map[string]string{"unknown": "", "empty": "", "same": "old", "other": "new"}[c.bundle]
	}
	if c.observed == "rewound" || c.observed == "ahead" {
		if !c.resolved || !c.chosen || c.idle || c.broken {
			return "", false
		}
		return digest, true
	}
	if c.restored && (!c.resolved || !c.chosen || c.idle || c.broken) {
		return "", false // its agent may be ahead without having reported it
	}
	forAgent := c.edited != "" && c.edited != "manual" && c.edited != "pruneOnDetach"
	if digest == "old" && !forAgent {
		return "", false
	}
	return digest, c.restored || c.holdPrune && c.observed != "equal"
}

// consent returns when a wanted state has the consent of an edit.
func (c situation) consent(digest string, hold bool) bool {
	switch {
	case hold:
		return false
	case digest == "new":
		return c.firstOfEdit
	case c.edited == "namespace" || c.edited == "pruneOn":
		return true
	}
	return c.consented && (c.observed == "none" || c.observed == "older")
}

func situations(yield func(situation) bool) {
	bools := []bool{false, true}
	for _, left := range []int{0, 1, 2, 3, 4} {
		for _, observed := range []string{"none", "older", "equal", "rewound", "ahead"} {
			for flags := range 256 {
				for _, bundle := range []string{"unknown", "empty", "same", "other"} {
					for edited := range edits {
						c := situation{
							tombstone: left == 1, detached: left == 2, agentGone: left == 3, labelMissing: left == 4,
							observed: observed, bundle: bundle, edited: edited,
							resolved: bools[flags&1], chosen: bools[flags>>1&1], idle: bools[flags>>2&1], broken: bools[flags>>3&1], holdPrune: bools[flags>>4&1],
							restored: bools[flags>>5&1], firstOfEdit: bools[flags>>6&1], consented: bools[flags>>7&1],
						}
						if !yield(c) {
							return
						}
					}
				}
			}
		}
	}
}

// Invariant 4, for every combination: nothing is deleted here, nothing that left or is ahead of the server
// changes, and the state after a rewind holds its prune.
func TestDecideOverEveryCombination(t *testing.T) {
	t.Parallel()
	n := 0
	for c := range situations {
		n++
		st, d, target, w := c.inputs()
		got, changed := st.decide(d, target, w)
		digest, hold := c.expect()
		want := target.Desired
		if digest != "" {
			commit := "c2"
			if !c.chosen {
				commit = "c1"
			}
			want = fleet.Desired{Version: fleet.Version{Epoch: st.planner.epoch, Generation: 8}, Digest: digest, Commit: commit, Namespace: d.Namespace, Policy: d.Policy, HoldPrune: hold}
			want.Consent = c.consent(digest, hold)
			if c.observed == "ahead" {
				want.Version = fleet.Version{Epoch: 3, Generation: 42}
			}
		}
		// cmp alone takes a hundred times as long, for tens of thousands of them.
		if !reflect.DeepEqual(want, got) || changed != (digest != "") {
			t.Fatalf("%+v: changed %v (-want +got):\n%s", c, changed, cmp.Diff(want, got))
		}
		if !changed {
			continue
		}
		if got.Tombstone || got.Detached || got.Digest == "" || got.Version.Compare(Newest(target)) <= 0 {
			t.Fatalf("%+v: %+v could delete, or would not be heard", c, got)
		}
		// The same again changes nothing: T4.
		target.Desired = got
		if again, changed := st.decide(d, target, w); changed {
			t.Fatalf("%+v: decided twice it moves on to %+v", c, again)
		}
	}
	if n < 100_000 {
		t.Fatalf("only %d combinations", n)
	}
}

// A rewound target that got the next version is no longer ahead; it does not get another one before its report.
func TestDecideGivesARewoundTargetOneVersion(t *testing.T) {
	t.Parallel()
	st, d, target, w := situation{observed: "ahead", resolved: true, chosen: true, bundle: "same"}.inputs()
	first, changed := st.decide(d, target, w)
	if !changed || !first.HoldPrune {
		t.Fatalf("got %+v", first)
	}
	target.Desired = first
	if second, changed := st.decide(d, target, w); changed {
		t.Fatalf("moved on to %+v", second)
	}
	w.bundles["v"] = fleet.Rendered{Digest: "newer", Commit: "c3"}
	second, changed := st.decide(d, target, w)
	if !changed || !second.HoldPrune {
		t.Fatalf("a commit before the report releases the prune: %+v", second)
	}
	target.Desired = second
	target.Observed = fleet.Observed{Version: second.Version, Sync: fleet.SyncSynced}
	w.bundles["v"] = fleet.Rendered{Digest: "newest", Commit: "c4"}
	if third, changed := st.decide(d, target, w); !changed || third.HoldPrune {
		t.Fatalf("the prune is held for ever: %+v", third)
	}
}

func TestSuspensionCause(t *testing.T) {
	t.Parallel()
	if got := SuspensionCause(fleet.ReasonSuspended, "it", fleet.Suspension{}); !got.IsZero() {
		t.Errorf("not suspended is %+v", got)
	}
	got := SuspensionCause(fleet.ReasonSuspended, "it", fleet.Suspension{At: now, By: "ada", Reason: "audit"})
	if want := (fleet.Cause{Reason: fleet.ReasonSuspended, Message: "it is suspended by ada since 2026-01-02T03:04:05Z: audit"}); got != want {
		t.Errorf("got %+v", got)
	}
}
