package agentsim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// testCluster is a cluster with the current process of its agent.
type testCluster struct {
	*fakeEngine
	events   []string
	statuses map[fleet.TargetID]engine.Status
}

func newTestCluster() *testCluster {
	r := &testCluster{statuses: map[fleet.TargetID]engine.Status{}}
	c := NewCluster(func(e Event) {
		if e.Kind != EventAccepted {
			r.events = append(r.events, string(e.Kind)+" "+e.Object.Name)
		}
	})
	r.fakeEngine = &fakeEngine{cluster: c}
	r.restart()
	return r
}

// restart starts a new process on the same cluster.
func (r *testCluster) restart() {
	r.fakeEngine = newFakeEngine(r.cluster, "replica", func(s engine.Status) { r.statuses[s.Target] = s })
}

func desired(t *testing.T, target string, generation int64, objects string, with ...func(*fleet.Desired)) engine.Desired {
	t.Helper()
	d := engine.Desired{Target: fleet.TargetID(target), Tenant: "alpha", Deployment: strings.TrimRight(target, "0123456789")}
	d.State = fleet.Desired{Version: fleet.Version{Generation: generation}, Namespace: "ns", Policy: fleet.Policy{Prune: true}}
	for _, w := range with {
		w(&d.State)
	}
	if d.State.Tombstone || d.State.Detached {
		return d
	}
	var parsed []manifest.Object
	for _, name := range strings.Fields(objects) {
		found, err := manifest.Parse(name, fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %q}\n", name))
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, found...)
	}
	var err error
	if d.Objects, err = manifest.NewSet(parsed, "ns"); err != nil {
		t.Fatal(err)
	}
	d.State.Digest = d.Objects.Digest()
	return d
}

func (r *testCluster) names() string {
	var out []string
	for _, o := range r.cluster.Objects() {
		name := o.Name
		if o.Target == "" {
			name += "?"
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func tombstone(d *fleet.Desired) { d.Tombstone = true }
func detached(d *fleet.Desired)  { d.Detached = true }
func held(d *fleet.Desired)      { d.HoldPrune = true }
func limited(d *fleet.Desired)   { d.Policy.PruneLimit = fleet.PruneLimit{Objects: 1, Percent: 1} }
func consented(d *fleet.Desired) { d.Consent = true }
func confirmed(d *fleet.Desired) { d.Confirmed = []string{"ConfigMap ns/x"} }
func unpruned(d *fleet.Desired)  { d.Policy.Prune = false }
func adopting(d *fleet.Desired)  { d.Policy.Adopt = true }

// testCase is a sequence of states for the engine and the expected result.
type testCase struct {
	name, reason string
	states       []engine.Desired
	objects      string // with "?" after those without an owner
	events       []string
	sync         fleet.SyncState // of target a
	why          fleet.Reason    // of target a; "" is not checked
}

// Actions other than a desired state.
var (
	restart = engine.Desired{Target: "restart"}
	pending = engine.Desired{Target: "pending"}
	settled = engine.Desired{Target: "settled"}
)

// pruneCases are about objects that leave a bundle.
func pruneCases(t *testing.T) []testCase {
	t.Helper()
	return []testCase{
		{
			name: "prunes", reason: "an object that has left the bundle is deleted",
			states:  []engine.Desired{desired(t, "a", 1, "x y"), desired(t, "a", 2, "y z")},
			objects: "y z", events: []string{"deleted x"}, sync: fleet.SyncSynced,
		},
		{
			name: "hold", reason: "the first prune after a rewind is held and reported once",
			states:  []engine.Desired{desired(t, "a", 1, "x y"), desired(t, "a", 2, "y", held), desired(t, "a", 2, "y", held)},
			objects: "x y", events: []string{"kept x"}, sync: fleet.SyncOutOfSync,
		},
		{
			name: "hold stays", reason: "a held prune stays held in the next state and after a restart",
			states:  []engine.Desired{desired(t, "a", 1, "x y"), desired(t, "a", 2, "y", held), desired(t, "a", 3, "y"), restart, desired(t, "a", 4, "y", consented)},
			objects: "x y", events: []string{"kept x"}, sync: fleet.SyncOutOfSync,
		},
		{
			name: "hold ends", reason: "a held object is deleted when that is confirmed",
			states:  []engine.Desired{desired(t, "a", 1, "x y"), desired(t, "a", 2, "y", held), desired(t, "a", 3, "y", confirmed)},
			objects: "y", events: []string{"kept x", "deleted x"}, sync: fleet.SyncSynced,
		},
		{
			name: "policy", reason: "the policy disables pruning",
			states:  []engine.Desired{desired(t, "a", 1, "x y"), desired(t, "a", 2, "y", unpruned)},
			objects: "x y", sync: fleet.SyncSynced,
		},
		{
			name: "empty", reason: "an empty bundle does not delete anything",
			states:  []engine.Desired{desired(t, "a", 1, "x"), desired(t, "a", 2, "")},
			objects: "x", sync: fleet.SyncSynced,
		},
		{
			name: "older", reason: "an older state is ignored",
			states:  []engine.Desired{desired(t, "a", 2, "x y"), desired(t, "a", 1, "y")},
			objects: "x y", events: []string{"ignored "}, sync: fleet.SyncSynced,
		},
		{
			name: "older after a restart", reason: "the inventory has the version",
			states:  []engine.Desired{desired(t, "a", 2, "x y"), restart, desired(t, "a", 1, "y")},
			objects: "x y", events: []string{"ignored "}, sync: fleet.SyncSynced,
		},
		{
			name: "prunes after a restart", reason: "the inventory has the applied objects",
			states:  []engine.Desired{desired(t, "a", 1, "x y"), restart, desired(t, "a", 2, "y")},
			objects: "y", events: []string{"deleted x"}, sync: fleet.SyncSynced,
		},
		{
			name: "unknown target", reason: "a new process does not touch targets that it has not received",
			states:  []engine.Desired{desired(t, "a", 1, "x"), restart, desired(t, "b", 1, "y")},
			objects: "x y", sync: fleet.SyncSynced,
		},
	}
}

// targetCases are about deleted targets, and about targets that are pending.
func targetCases(t *testing.T) []testCase {
	t.Helper()
	return []testCase{
		{
			name: "tombstone", reason: "a tombstone deletes all objects of its target",
			states:  []engine.Desired{desired(t, "a", 1, "x"), desired(t, "b", 1, "y"), desired(t, "a", 2, "", tombstone)},
			objects: "y", events: []string{"deleted x"}, sync: fleet.SyncDeleted,
		},
		{
			name: "tombstone of nothing", reason: "a tombstone for an unknown target is acknowledged",
			states: []engine.Desired{desired(t, "a", 2, "", tombstone)}, sync: fleet.SyncDeleted, why: fleet.ReasonNoInventory,
		},
		{
			name: "waits", reason: "an object may belong to a pending target",
			states:  []engine.Desired{desired(t, "a", 1, "x y"), pending, desired(t, "a", 2, "y")},
			objects: "x y", sync: fleet.SyncSyncing, why: fleet.ReasonWaitingForDeployments,
		},
		{
			name: "continues", reason: "the prune continues when no target is pending",
			states:  []engine.Desired{desired(t, "a", 1, "x y"), pending, desired(t, "a", 2, "y"), settled},
			objects: "y", events: []string{"deleted x"}, sync: fleet.SyncSynced,
		},
		{
			name: "hands over", reason: "an object that moves to another target is not deleted",
			states:  []engine.Desired{desired(t, "a", 1, "x y"), pending, desired(t, "a", 2, "", tombstone), desired(t, "b", 1, "x"), settled},
			objects: "x", events: []string{"deleted y"}, sync: fleet.SyncDeleted,
		},
	}
}

// limitCases are about deletions that have to be confirmed.
func limitCases(t *testing.T) []testCase {
	t.Helper()
	return []testCase{
		{
			name: "too many", reason: "deletions above the limit have to be confirmed",
			states:  []engine.Desired{desired(t, "a", 1, "x y z"), desired(t, "a", 2, "z", limited)},
			objects: "x y z", sync: fleet.SyncOutOfSync, why: fleet.ReasonPruneHeld,
		},
		{
			name: "few", reason: "deletions up to the limit are not held",
			states:  []engine.Desired{desired(t, "a", 1, "x y z"), desired(t, "a", 2, "y z", limited)},
			objects: "y z", events: []string{"deleted x"}, sync: fleet.SyncSynced,
		},
		{
			name: "consent", reason: "the limit does not apply to an edit of the deployment",
			states:  []engine.Desired{desired(t, "a", 1, "x y z"), desired(t, "a", 2, "z", limited, consented)},
			objects: "z", events: []string{"deleted x", "deleted y"}, sync: fleet.SyncSynced,
		},
		{
			name: "confirmed", reason: "a confirmed object is deleted; the others stay held, even below the limit and after an edit",
			states: []engine.Desired{
				desired(t, "a", 1, "x y z"), desired(t, "a", 2, "z", limited), desired(t, "a", 3, "z", limited, confirmed),
				{Target: "restart"}, desired(t, "a", 4, "z", limited, consented),
			},
			objects: "y z", events: []string{"deleted x"}, sync: fleet.SyncOutOfSync,
		},
		{
			name: "desired again", reason: "an object that was in the bundle again is not held any more",
			states: []engine.Desired{
				desired(t, "a", 1, "x y z"), desired(t, "a", 2, "z", limited), desired(t, "a", 3, "x y z", limited), desired(t, "a", 4, "y z", limited),
			},
			objects: "y z", events: []string{"deleted x"}, sync: fleet.SyncSynced,
		},
	}
}

// ownerCases are about objects that several targets want, and about targets that are detached.
func ownerCases(t *testing.T) []testCase {
	t.Helper()
	return []testCase{
		{
			name: "refuses", reason: "an object of another deployment is not adopted",
			states:  []engine.Desired{desired(t, "b", 1, "x"), desired(t, "a", 1, "x y")},
			objects: "x y", sync: fleet.SyncFailed, why: fleet.ReasonObjectsFailed,
		},
		{
			name: "detached", reason: "detaching deletes nothing",
			states:  []engine.Desired{desired(t, "a", 1, "x"), desired(t, "a", 2, "", detached)},
			objects: "x?", events: []string{"detached x"}, sync: fleet.SyncDetached, why: fleet.ReasonDetached,
		},
		{
			name: "attached again", reason: "a deployment adopts its detached objects that it desires again",
			states:  []engine.Desired{desired(t, "a", 1, "x y"), desired(t, "a", 2, "", detached), desired(t, "a", 3, "y")},
			objects: "x? y", events: []string{"detached x", "detached y"}, sync: fleet.SyncSynced,
		},
		{
			name: "left by another target", reason: "an object of an earlier target of the same deployment is adopted",
			states:  []engine.Desired{desired(t, "a1", 1, "x y"), {Target: "restart"}, desired(t, "a", 1, "x")},
			objects: "x y", sync: fleet.SyncSynced,
		},
		{
			name: "left by another deployment", reason: "an object of an earlier target of another deployment is not adopted",
			states:  []engine.Desired{desired(t, "b", 1, "x"), {Target: "restart"}, desired(t, "a", 1, "x")},
			objects: "x", sync: fleet.SyncFailed,
		},
	}
}

// supersedeCases are about several targets of one deployment, and about restored backups.
func supersedeCases(t *testing.T) []testCase {
	t.Helper()
	return []testCase{
		{
			name: "supersedes", reason: "the newest target of a deployment is active, and deletes nothing of the other",
			states:  []engine.Desired{desired(t, "a1", 1, "x y"), desired(t, "a", 1, "x"), desired(t, "a1", 1, "x y")},
			objects: "x y", sync: fleet.SyncSynced,
		},
		{
			name: "superseded", reason: "the previous target reports it",
			states:  []engine.Desired{desired(t, "a", 1, "x y"), desired(t, "a1", 1, "x")},
			objects: "x y", sync: fleet.SyncRewound, why: fleet.ReasonRewound,
		},
		{
			name: "active again", reason: "a newer state activates a target again",
			states:  []engine.Desired{desired(t, "a", 1, "x y"), desired(t, "a1", 1, "x"), desired(t, "a", 2, "x y")},
			objects: "x y", sync: fleet.SyncSynced,
		},
		{
			name: "comes back", reason: "after a restored backup a deleted target may be desired again, with an old version",
			states:  []engine.Desired{desired(t, "a", 1, "x"), desired(t, "a", 2, "", tombstone), desired(t, "a", 1, "x", adopting)},
			objects: "x", events: []string{"deleted x"}, sync: fleet.SyncSynced,
		},
	}
}

func TestFakeEngineImplementsTheContract(t *testing.T) {
	t.Parallel()
	for _, tt := range slices.Concat(pruneCases(t), targetCases(t), limitCases(t), ownerCases(t), supersedeCases(t)) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newTestCluster()
			for _, d := range tt.states {
				switch d.Target {
				case "restart":
					r.restart()
				case "pending":
					r.Pending(1)
				case "settled":
					r.Pending(0)
				default:
					r.Set(d)
				}
			}
			if got := r.names(); got != tt.objects {
				t.Errorf("%s: the cluster contains %q, want %q", tt.reason, got, tt.objects)
			}
			if diff := cmp.Diff(tt.events, r.events); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
			if got := r.statuses["a"].Observed.Sync; got != tt.sync {
				t.Errorf("%s: target a is %s (%s), want %s", tt.reason, got, r.statuses["a"].Observed.Message, tt.sync)
			}
			if got := r.statuses["a"].Observed.Reason; tt.why != "" && got != tt.why {
				t.Errorf("%s: the reason of target a is %s, want %s", tt.reason, got, tt.why)
			}
			for id, s := range r.statuses {
				for _, o := range append(s.Objects, fleet.ObjectStatus{Reason: s.Observed.Reason}) {
					if _, listed := o.Reason.Info(); !listed {
						t.Errorf("%s: an object of target %s has the reason %q, want one of the list", tt.reason, id, o.Reason)
					}
				}
			}
		})
	}
}
