package control_test

import (
	"errors"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// holdObjects has an agent report a target of default with n objects.
func (d *fixture) holdObjects(t failer, agent fleet.Agent, deployment string, n int) {
	t.Helper()
	target := d.targets(t, "default", deployment)[agent.Name]
	objects := make([]fleet.ObjectStatus, n)
	for i := range objects {
		objects[i] = fleet.ObjectStatus{
			ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "x", Name: string(rune('a' + i))}, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent,
		}
	}
	ok(t, d.Report(d.ctx, []rollout.AgentReports{{Agent: agent, Reports: []store.Report{{Target: target.ID, Full: true, Objects: objects, Observed: fleet.Observed{
		Version: target.Desired.Version, Digest: target.Desired.Digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: d.clock.Now(),
	}}}}}))
}

// covers: C4
func TestObjectsOfAnAgentAreDeletedOnRequest(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris, rome := d.enroll(t, "default", "paris", nil), d.enroll(t, "default", "rome", nil)
	for _, name := range []string{"app", "web"} {
		d.deploy(t, "default", name, "")
		d.render(t, "default", name, "1")
		d.holdObjects(t, paris, name, 2)
		d.holdObjects(t, rome, name, 2)
	}
	untouched := func(reason string) {
		t.Helper()
		for _, name := range []string{"app", "web"} {
			for agent, target := range d.targets(t, "default", name) {
				if target.Desired.Tombstone || target.Desired.Detached {
					t.Fatalf("%s: deployment %s on %s is to be deleted", reason, name, agent)
				}
			}
		}
	}
	_, err := d.DeleteAgentObjects(d.ctx, root, "default", "nobody", 4)
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a wrong name gives %v", err)
	}
	_, err = d.DeleteAgentObjects(d.ctx, root, "default", "paris", 4)
	wantConflict(t, err, "not connected")
	untouched("an agent that is not connected")
	d.connect(t, paris, "cluster-1")
	_, err = d.DeleteAgentObjects(d.ctx, root, "default", "paris", 3)
	wantConflict(t, err, "4 objects now, not 3")
	untouched("another number than there are")
	deployer := auth.Principal{Name: "dep", Component: "rest"}
	if _, err := d.DeleteAgentObjects(d.ctx, deployer, "default", "paris", 4); err == nil {
		t.Error("a caller who may not change the agent may delete its objects")
	}
	untouched("a caller without the role")

	found, err := d.DeleteAgentObjects(d.ctx, root, "default", "paris", 4)
	ok(t, err)
	if found.Objects != 4 || len(found.Deployments) != 2 || !found.Uninstalling {
		t.Errorf("the answer is %+v", found)
	}
	d.wantEvent(t, "default", "AgentUninstalling")
	// Nothing brings it back during the deletion: neither a commit nor an edit nor another deployment.
	d.render(t, "default", "app", "2")
	_, err = d.UpdateAgent(d.ctx, root, "default", "paris", control.UpdateAgent{Labels: &map[string]string{"a": "b"}}, control.Match{})
	ok(t, err)
	d.deploy(t, "default", "late", "")
	for _, name := range []string{"app", "web"} {
		targets := d.targets(t, "default", name)
		if there := targets["rome"].Desired; there.Tombstone || there.Detached || there.Digest == "" {
			t.Errorf("deployment %s on the other agent is %+v", name, there)
		}
		target := targets["paris"]
		if !target.Desired.Tombstone {
			t.Fatalf("deployment %s is %+v, want a tombstone", name, target.Desired)
		}
		d.says(t, paris, target.ID, fleet.Observed{Version: target.Desired.Version, Sync: fleet.SyncDeleted, AsOf: d.clock.Now()})
		d.wantPlaces(t, "default", name, map[string]string{"rome": "attached"})
	}
	d.wantPlaces(t, "default", "late", map[string]string{"rome": "empty"})
	left, err := d.AgentObjects(d.ctx, root, "default", "paris")
	ok(t, err)
	if left.Objects != 0 || len(left.Deployments) != 0 {
		t.Errorf("%+v is left", left)
	}
	ok(t, d.DeleteAgent(d.ctx, root, "default", "paris", control.Match{}))
}

func TestObjectsOfAnAgentStayWhileTheFleetIsSuspended(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", nil)
	d.deploy(t, "default", "app", "")
	d.render(t, "default", "app", "1")
	d.holdObjects(t, paris, "app", 1)
	d.connect(t, paris, "cluster-1")
	_, err := d.SuspendEnvironment(d.ctx, root, "default", "default", "december")
	ok(t, err)
	_, err = d.DeleteAgentObjects(d.ctx, root, "default", "paris", 1)
	wantConflict(t, err, "cannot be deleted now")
	if d.targets(t, "default", "app")["paris"].Desired.Tombstone {
		t.Error("the objects are to be deleted")
	}
}
