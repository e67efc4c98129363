package builtin

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

func wanting(t *testing.T, target fleet.TargetID, text string) engine.Desired {
	t.Helper()
	objects, err := manifest.Parse("a.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	set, err := manifest.NewSet(objects, "ns")
	if err != nil {
		t.Fatal(err)
	}
	return engine.Desired{Target: target, Objects: set, State: fleet.Desired{Namespace: "ns"}}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	const config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
	const custom = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}"
	key := inventory.Key{Kind: "ConfigMap", Namespace: "ns", Name: "a"}
	c := newClaims()
	if c.abandoned(key, "one") {
		t.Error("a target that is not known here has abandoned nothing")
	}
	c.set(wanting(t, "one", config))
	c.set(wanting(t, "two", config))
	if got := c.other(key, "one"); got != "two" {
		t.Errorf("the other is %q, want two", got)
	}
	if c.abandoned(key, "one") {
		t.Error("one desires it")
	}
	if diff := cmp.Diff([]fleet.TargetID{"two"}, c.set(wanting(t, "one", custom))); diff != "" {
		t.Errorf("who waits for what was let go:\n%s", diff)
	}
	if !c.abandoned(key, "one") || c.other(key, "two") != "" {
		t.Error("one has let go of it")
	}
	for _, namespace := range []string{"", "ns"} {
		widget := inventory.Key{Group: "example.com", Kind: "Widget", Namespace: namespace, Name: "w"}
		if c.other(widget, "two") != "one" {
			t.Errorf("a kind of unknown scope is not claimed in namespace %q", namespace)
		}
	}
	c.set(engine.Desired{Target: "two", State: fleet.Desired{Tombstone: true}})
	if !c.abandoned(key, "two") || c.other(key, "one") != "" {
		t.Error("a tombstone lets go of everything")
	}
}
