package builtin

import (
	"context"
	"log/slog"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/watch"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

func TestStateOfAWatchDoesNotHideWhatItReported(t *testing.T) {
	t.Parallel()
	key := inventory.Key{Kind: "ConfigMap", Namespace: "app", Name: "a"}
	live, gone := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	up, down, stale := watch.State{Reason: watch.Synced}, watch.State{Reason: watch.Failing}, watch.State{Reason: watch.Stale, Message: "long"}
	cases := []struct {
		reason string
		seen   []watch.Observation
		want   watch.Observation
	}{
		{"it fails after a change", []watch.Observation{{Live: live}, {State: stale}}, watch.Observation{Live: live, State: stale}},
		{"it works again after a deletion", []watch.Observation{{Deleted: gone}, {State: up}}, watch.Observation{Deleted: gone, State: up}},
		{"it works again after a list", []watch.Observation{{Missing: "7"}, {State: down}, {State: up}}, watch.Observation{Missing: "7", State: up}},
		{"it sees something new", []watch.Observation{{Live: live}, {State: down}, {Deleted: gone}}, watch.Observation{Deleted: gone}},
		{"it fails after a list from another time", []watch.Observation{{Live: live, Rewound: true}, {State: down}}, watch.Observation{Live: live, Rewound: true, State: down}},
		{"it sees a change after a list from another time", []watch.Observation{{Missing: "7", Rewound: true}, {Live: live}}, watch.Observation{Live: live, Rewound: true}},
		{"it only fails", []watch.Observation{{State: up}, {State: down}}, watch.Observation{State: down}},
	}
	for _, c := range cases {
		one := newTarget(&Engine{log: slog.New(slog.DiscardHandler)}, "tgt-a", fleet.Version{})
		for _, seen := range c.seen {
			one.Observe(key, seen)
		}
		if got := one.inbox.observed[key]; got != c.want {
			t.Errorf("%s: %+v is left, want %+v", c.reason, got, c.want)
		}
	}
}

func TestFailedWatchDoesNotHideADeletion(t *testing.T) {
	t.Parallel()
	e, err := New(Config{Namespace: "home", REST: &rest.Config{Host: "http://127.0.0.1:1"}, Reporter: make(told), AgentID: "agt-a", Scope: fleet.ScopeCluster})
	if err != nil {
		t.Fatal(err)
	}
	one := newTarget(e, "tgt-a", fleet.Version{})
	desired := wanting(t, "tgt-a", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
	desired.State.Version = fleet.Version{Epoch: 1, Generation: 1}
	one.accept(desired)
	one.begin(t.Context(), one.drainInbox())
	o, down := one.order[0], watch.State{Reason: watch.Failing}
	o.phase, o.record.applied = phaseInPlace, o.spec.hash
	one.Observe(o.key(), watch.Observation{Deleted: &unstructured.Unstructured{}})
	one.Observe(o.key(), watch.Observation{State: down})
	one.drainInbox()
	if o.phase != phaseApply || !o.watch.Failed() {
		t.Errorf("phase is %d, failed watch %v, want the object applied again although its watch has failed since", o.phase, o.watch.Failed())
	}
	// What was seen while a request was under way says nothing of the watch now.
	o.phase = phaseApplying
	one.Observe(o.key(), watch.Observation{Deleted: &unstructured.Unstructured{}})
	one.drainInbox()
	one.Observe(o.key(), watch.Observation{State: down})
	one.drainInbox()
	o.phase = phaseInPlace
	one.evaluateLater(o)
	if o.phase != phaseApply || !o.watch.Failed() {
		t.Errorf("phase is %d, failed watch %v, want both what was seen and that the watch has failed since", o.phase, o.watch.Failed())
	}
}

// An API server whose database was restored counts on from before.
//
// covers: D1
func TestWhatIsSeenAfterARestoreCounts(t *testing.T) {
	t.Parallel()
	edited := func(version string) *unstructured.Unstructured {
		live := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		live.SetResourceVersion(version)
		live.SetUID("u")
		live.SetLabels(map[string]string{kube.LabelTarget: "tgt-a", kube.LabelAgent: "agt-a"})
		return live
	}
	for reason, tt := range map[string]struct {
		see  func(one *target, o *object)
		want phase
	}{
		"a list of before": {func(one *target, o *object) { one.handleObservation(o, watch.Observation{Live: edited("7")}) }, phaseInPlace},
		"a list after a restore": {func(one *target, o *object) {
			one.handleObservation(o, watch.Observation{Live: edited("7"), Rewound: true})
		}, phaseApply},
		"missing in a list of before": {func(one *target, o *object) { one.handleObservation(o, watch.Observation{Missing: "7"}) }, phaseInPlace},
		"missing after a restore":     {func(one *target, o *object) { one.handleObservation(o, watch.Observation{Missing: "7", Rewound: true}) }, phaseVerify},
		"a read":                      {func(one *target, o *object) { o.phase = phaseReading; one.wasRead(o, edited("7"), nil) }, phaseApply},
	} {
		e, err := New(Config{Namespace: "home", REST: &rest.Config{Host: "http://127.0.0.1:1"}, Reporter: make(told), AgentID: "agt-a", Scope: fleet.ScopeCluster})
		if err != nil {
			t.Fatal(err)
		}
		one := newTarget(e, "tgt-a", fleet.Version{})
		one.accept(wanting(t, "tgt-a", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"))
		one.begin(t.Context(), one.drainInbox())
		o := one.order[0]
		o.phase, o.record.applied, o.record.uid, o.live.version, o.record.live, o.live.known = phaseInPlace, o.spec.hash, "u", "100", "as it was", true
		tt.see(one, o)
		if o.phase != tt.want {
			t.Errorf("%s leaves it in phase %d, want %d", reason, o.phase, tt.want)
		}
	}
}

func TestTargetThatDoesNothingAnyMoreWaitsForNoKind(t *testing.T) {
	t.Parallel()
	for reason, end := range map[string]func(one *target){
		"superseded":             func(one *target) { one.stopped.successor = "tgt-successor" },
		"behind a newer replica": func(one *target) { one.stopped.newerReplica = true },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // nothing is watched: it only counts who waits
		e := &Engine{log: slog.New(slog.DiscardHandler)}
		e.client, _ = kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"}, kube.DefaultTimeouts())
		e.watchers.definitions = watch.NewDefinitions(ctx, e.client.Metadata, e.client.Mapper, e.log, watch.DefaultTiming())
		one := newTarget(e, "tgt-a", fleet.Version{})
		e.watchers.definitions.Want(one, true)
		end(one)
		one.advance()
		if e.watchers.definitions.Waiters() != 0 {
			t.Errorf("a target that is %s still has definitions watched", reason)
		}
	}
}
