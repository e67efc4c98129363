package builtin

import (
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// A successor may come after a state was taken from the inbox and before the work on it begins. Nothing runs
// here: the test does by itself, in that order, what Set and the goroutine of the target do.
func TestTargetThatIsSupersededBeforeItBeginsBelievesNothingLater(t *testing.T) {
	t.Parallel()
	e, err := New(Config{Namespace: "home", REST: &rest.Config{Host: "http://127.0.0.1:1"}, Reporter: make(told), AgentID: "agt-a", Scope: fleet.ScopeCluster})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := manifest.Parse("a.yaml", []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"))
	if err != nil {
		t.Fatal(err)
	}
	set, err := manifest.NewSet(objects, "app")
	if err != nil {
		t.Fatal(err)
	}
	desired := func(generation int64) engine.Desired {
		return engine.Desired{Target: "tgt-a", Tenant: "t", Deployment: "d", Objects: set, State: fleet.Desired{
			Version: fleet.Version{Epoch: 1, Generation: generation}, Digest: set.Digest(), Namespace: "app",
		}}
	}
	one := newTarget(e, "tgt-a", fleet.Version{})
	one.accept(desired(1))
	next := one.drainInbox()
	one.supersede("tgt-successor")
	one.begin(t.Context(), next)
	if one.stopped.successor != "tgt-successor" {
		t.Error("a target that has a successor begins to work")
	}
	for _, o := range one.objects { // as it was before the successor worked on it
		o.live.known, o.record.applied, o.record.live = true, o.spec.hash, "live"
	}
	one.accept(desired(2))
	one.begin(t.Context(), one.drainInbox())
	if one.stopped.successor != "" {
		t.Error("a target that is desired again still has a successor")
	}
	for _, o := range one.objects {
		if o.live.known || o.record.applied != "" || o.record.live != "" {
			t.Errorf("%v is believed to be as it was before the successor worked on it", o.ref)
		}
	}
	if one.inbox.wasSuperseded {
		t.Error("a target without a successor doubts what it has applied itself")
	}
}
