package builtin

import (
	"slices"
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

// claimChanges records what claims tell their listener.
type claimChanges struct {
	replaced        fleet.TargetID
	offered, notify []fleet.TargetID
}

func (c *claimChanges) superseded(old, _ fleet.TargetID) { c.replaced = old }
func (c *claimChanges) available(id fleet.TargetID)      { c.offered = append(c.offered, id) }
func (c *claimChanges) released(id fleet.TargetID)       { c.notify = append(c.notify, id) }

func TestClaims(t *testing.T) {
	t.Parallel()
	heard := &claimChanges{}
	const config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
	const custom = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}"
	key := inventory.Key{Kind: "ConfigMap", Namespace: "ns", Name: "a"}
	c := newClaims(heard)
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
	c.set(wanting(t, "one", custom))
	if diff := cmp.Diff([]fleet.TargetID{"two"}, heard.offered); diff != "" {
		t.Errorf("targets that wait for the released objects:\n%s", diff)
	}
	if !c.abandoned(key, "one") || c.other(key, "two") != "" {
		t.Error("one has released it")
	}
	for _, namespace := range []string{"", "ns"} {
		widget := inventory.Key{Group: "example.com", Kind: "Widget", Namespace: namespace, Name: "w"}
		if c.other(widget, "two") != "one" {
			t.Errorf("a kind of unknown scope is not claimed in namespace %q", namespace)
		}
	}
	c.set(engine.Desired{Target: "two", State: fleet.Desired{Tombstone: true}})
	if !c.abandoned(key, "two") || c.other(key, "one") != "" {
		t.Error("a tombstone releases everything")
	}
}

func TestOneTargetOfADeploymentIsLive(t *testing.T) {
	t.Parallel()
	const config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
	key := inventory.Key{Kind: "ConfigMap", Namespace: "ns", Name: "a"}
	of := func(target fleet.TargetID, tenant, deployment string) engine.Desired {
		d := wanting(t, target, config)
		d.Tenant, d.Deployment = tenant, deployment
		return d
	}
	ended := func(target fleet.TargetID) engine.Desired {
		return engine.Desired{Target: target, Tenant: "acme", Deployment: "web", State: fleet.Desired{Tombstone: true}}
	}
	steps := []struct {
		reason     string
		desired    engine.Desired
		superseded fleet.TargetID
	}{
		{"the first", of("one", "acme", "web"), ""},
		{"the same again", of("one", "acme", "web"), ""},
		{"another deployment", of("api", "acme", "api"), ""},
		{"another tenant's deployment of that name", of("guest", "globex", "web"), ""},
		{"a tombstone of an older one takes no place", ended("older"), ""},
		{"another target of the deployment", of("two", "acme", "web"), "one"},
		{"and back, as a restored server may want it", of("one", "acme", "web"), "two"},
		{"the end of one that was superseded", ended("two"), ""},
		{"nobody is left to be superseded", ended("one"), ""},
		{"a fresh one", of("three", "acme", "web"), ""},
	}
	heard := &claimChanges{}
	c := newClaims(heard)
	for _, step := range steps {
		heard.replaced = ""
		if c.set(step.desired); heard.replaced != step.superseded {
			t.Errorf("%s: superseded %q, want %q", step.reason, heard.replaced, step.superseded)
		}
		if step.superseded != "" && !c.abandoned(key, step.superseded) {
			t.Errorf("%s: %q still claims what it had", step.reason, step.superseded)
		}
	}
}

func TestClaimThatCannotBeMadeGoodKeepsNothing(t *testing.T) {
	t.Parallel()
	const config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
	key := inventory.Key{Kind: "ConfigMap", Namespace: "ns", Name: "a"}
	dryRun := wanting(t, "two", config)
	dryRun.State.Policy.DryRun = true
	steps := []struct {
		reason string
		do     func(c *claims)
		other  fleet.TargetID
	}{
		{"two desires what one has", func(c *claims) { c.set(wanting(t, "one", config)); c.set(wanting(t, "two", config)) }, "two"},
		{"and is refused it", func(c *claims) { c.suspend(key, "two", "one") }, ""},
		{"one releases it", func(c *claims) { c.set(wanting(t, "one", "")) }, "two"},
		{"a refusal from before that comes late", func(c *claims) { c.suspend(key, "two", "one") }, "two"},
		{"the API server refuses it", func(c *claims) { c.suspend(key, "two", "") }, ""},
		{"it does so no more", func(c *claims) { c.resume(key, "two") }, "two"},
		{"refused by somebody who is not known here", func(c *claims) { c.suspend(key, "two", "elsewhere") }, ""},
		{"two is desired again", func(c *claims) { c.set(wanting(t, "two", config)) }, "two"},
		{"as a dry run", func(c *claims) { c.set(dryRun) }, ""},
		{"and not so any more", func(c *claims) { c.set(wanting(t, "two", config)) }, "two"},
	}
	c := newClaims(&claimChanges{})
	for _, step := range steps {
		step.do(c)
		if got := c.other(key, "one"); got != step.other {
			t.Errorf("%s: the other is %q, want %q", step.reason, got, step.other)
		}
		if c.abandoned(key, "two") {
			t.Errorf("%s: two has abandoned what it desires", step.reason)
		}
	}
}

// A target that keeps something because of the claims of others is told when one is released, once for each wait.
func TestWaitingTargetsAreToldOfReleasedClaims(t *testing.T) {
	t.Parallel()
	const config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
	key := inventory.Key{Kind: "ConfigMap", Namespace: "ns", Name: "a"}
	heard := &claimChanges{}
	c := newClaims(heard)
	c.set(wanting(t, "two", config))
	told := func(reason string, want bool) {
		t.Helper()
		if slices.Contains(heard.notify, "one") != want {
			t.Errorf("%s: %v is told", reason, heard.notify)
		}
		heard.notify = nil
	}
	c.set(wanting(t, "two", ""))
	told("nobody waits", false)
	c.set(wanting(t, "two", config))
	c.await("one", c.releaseCount())
	told("nothing was released yet", false)
	c.set(wanting(t, "three", config))
	told("another claim is made", false)
	c.set(wanting(t, "two", ""))
	told("a claim is released", true)
	before := c.releaseCount()
	c.set(wanting(t, "three", ""))
	told("it was told before", false)
	c.await("one", before)
	told("a claim was released before it waits", true)
	c.set(wanting(t, "two", config))
	c.await("one", c.releaseCount())
	c.suspend(key, "two", "")
	told("a claim is suspended", true)
	c.await("one", c.releaseCount())
	c.suspend(key, "two", "")
	told("it is suspended already", false)
}
