package argocd

import (
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// A server has one target of a deployment on an agent. The one that was set last is the one that it knows.
func TestTheLastTargetOfADeploymentSupersedesTheOneBefore(t *testing.T) {
	t.Parallel()
	e, err := New(Config{Namespace: "kedge-agent", EngineNamespace: "argocd", REST: &rest.Config{}, Reporter: noReporter{}})
	if err != nil {
		t.Fatal(err)
	}
	live := func(target fleet.TargetID, tenant, deployment string, generation int64) engine.Desired {
		return engine.Desired{
			Target: target, Tenant: tenant, Deployment: deployment, Source: &fleet.EngineSource{Objects: []string{sharedObject}},
			State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: generation}, Namespace: "shop"},
		}
	}
	tombstone := func(target fleet.TargetID, generation int64) engine.Desired {
		d := live(target, "team", "app", generation)
		d.Source, d.State.Tombstone = nil, true
		return d
	}
	for _, step := range []struct {
		reason string
		set    engine.Desired
		known  map[fleet.TargetID]bool
	}{
		{"the first", live("tgt-1", "team", "app", 1), map[fleet.TargetID]bool{"tgt-1": true, "tgt-2": false}},
		{"another deployment", live("tgt-3", "team", "shop", 1), map[fleet.TargetID]bool{"tgt-1": true, "tgt-3": true}},
		{"a deployment of the same name of another tenant", live("tgt-4", "foreign", "app", 1), map[fleet.TargetID]bool{"tgt-1": true, "tgt-4": true}},
		{"a tombstone of a target that was never here", tombstone("tgt-5", 1), map[fleet.TargetID]bool{"tgt-1": true}},
		{"another target of the deployment", live("tgt-2", "team", "app", 1), map[fleet.TargetID]bool{"tgt-1": false, "tgt-2": true, "tgt-3": true, "tgt-4": true}},
		{"the same state of the first again", live("tgt-1", "team", "app", 1), map[fleet.TargetID]bool{"tgt-1": false, "tgt-2": true}},
		{"an older state of the first", live("tgt-1", "team", "app", 0), map[fleet.TargetID]bool{"tgt-1": false, "tgt-2": true}},
		{"a newer state of the first", live("tgt-1", "team", "app", 2), map[fleet.TargetID]bool{"tgt-1": true, "tgt-2": false}},
		{"a late tombstone of the other one", tombstone("tgt-2", 2), map[fleet.TargetID]bool{"tgt-1": true, "tgt-2": true}},
	} {
		e.Set(step.set)
		for id, want := range step.known {
			if got := e.knows(id); got != want {
				t.Errorf("after %s: %s is known: %v", step.reason, id, got)
			}
		}
	}
	// A superseded target keeps no object from another deployment, and takes none.
	e.Set(live("tgt-6", "team", "app", 1))
	for _, d := range e.desiring(sharedObject, "tgt-3", "") {
		if d.Target == "tgt-1" {
			t.Error("a superseded target desires an object")
		}
	}
}
