package control_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func TestDeletedWithObjectsKeptIsDetachedAndThenGone(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris, rome := d.enroll(t, "default", "paris", nil), d.enroll(t, "default", "rome", nil)
	d.deploy(t, "default", "app", "default")
	d.render(t, "default", "app", "1")
	o, err := d.DeleteDeploymentKeepObjects(d.ctx, root, "default", "app", control.Match{})
	ok(t, err)
	for _, agent := range []fleet.Agent{paris, rome} {
		for _, target := range d.onAgent(t, agent) {
			if target.Desired.Tombstone || !target.Desired.Detached || target.Desired.Digest != "" {
				t.Errorf("%s gets %+v", agent.Name, target.Desired)
			}
			d.sayOf(t, agent, target, fleet.SyncDetached, "")
		}
	}
	if o := d.operation(t, o.ID); o.State != fleet.OperationCompleted {
		t.Errorf("the deletion is %s after every agent has released its target", o.State)
	}
	list, err := d.Deployments(d.ctx, root, "default", control.ListDeployments{})
	ok(t, err)
	if len(list) != 0 {
		t.Errorf("it is still listed: %+v", list)
	}
}

func TestDeletionIsCountedBeforeItIsAskedFor(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", nil)
	d.enroll(t, "default", "rome", nil)
	d.deploy(t, "default", "app", "default")
	d.render(t, "default", "app", "1")
	target := d.onAgent(t, paris)[0]
	object := func(kind, name string) fleet.ObjectStatus {
		return fleet.ObjectStatus{ObjectRef: fleet.ObjectRef{Kind: kind, Name: name}, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent}
	}
	ok(t, d.Report(d.ctx, []rollout.AgentReports{{Agent: paris, Reports: []store.Report{{
		Target: target.ID, Full: true,
		Observed: fleet.Observed{Version: target.Desired.Version, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: d.clock.Now()},
		Objects:  []fleet.ObjectStatus{object("ConfigMap", "a"), object("Service", "b"), object("Namespace", "shop")},
	}}}}))
	got, err := d.DeploymentDeletion(d.ctx, root, "default", "app")
	ok(t, err)
	if diff := cmp.Diff(control.Deletion{Clusters: 2, Away: 2, Objects: 2, Kept: 1}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
