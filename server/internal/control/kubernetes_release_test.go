package control_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// forResource returns a principal that acts for a Kubernetes resource in the default tenant.
func (d *fixture) forResource(t *testing.T, kind, name string) auth.Principal {
	t.Helper()
	tenant, err := d.Tenant(d.ctx, root, "default")
	ok(t, err)
	return auth.Principal{
		Name: kind + " team/" + name, Component: "kubernetes", Roles: map[fleet.TenantID]fleet.Role{tenant.ID: fleet.RoleAdmin},
		Owner: fleet.Owner{Kind: kind, Namespace: "team", Name: name, UID: "uid-" + name, Generation: 1, Created: 100},
	}
}

// covers: K6
func TestASyncRunResourceReleasesAPinnedDeployment(t *testing.T) {
	t.Parallel()
	d, paris, rome, _ := staged(t)
	d.rollback(t, 1)
	for _, agent := range []fleet.Agent{paris, rome} {
		d.say(t, agent, "app", fleet.SyncSynced, "")
	}
	newest := d.rendered(t, "default", "app", configMap("a", "4"))
	_, err := d.CreateRun(d.ctx, root, "default", "app", control.CreateRun{})
	wantConflict(t, err, "pinned to revision 1")
	run, err := d.CreateRun(d.ctx, d.forResource(t, "SyncRun", "release"), "default", "app", control.CreateRun{})
	ok(t, err)
	if v := d.view(t, "app"); v.Pin.Active() {
		t.Errorf("the deployment is pinned: %+v", v.Pin)
	}
	for agent, target := range d.targets(t, "default", "app") {
		if target.Desired.Digest != newest {
			t.Errorf("%s does not follow again: %+v", agent, target.Desired)
		}
	}
	if owned, err := d.OwnedRuns(d.ctx, d.forResource(t, "SyncRun", "release"), "default"); err != nil || len(owned) != 1 || owned[0].ID != run.ID {
		t.Errorf("the resource has the runs %+v, %v", owned, err)
	}
}

// covers: K2
func TestALostClusterIsAbandonedOnlyOnRequest(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	owner := d.forResource(t, "ManagedEnvironment", "lost")
	_, err := d.EnrollAgent(d.ctx, owner, "default", control.EnrollAgent{Name: "lost"})
	ok(t, err)
	d.deploy(t, "default", "web", "")
	d.render(t, "default", "web", "1")
	_, err = d.DeleteDeployment(d.ctx, root, "default", "web", control.Match{})
	ok(t, err)
	wantConflict(t, d.DeleteAgent(d.ctx, owner, "default", "lost", control.Match{}), "still has deployment")
	owner.AbandonDeletions = true
	ok(t, d.DeleteAgent(d.ctx, owner, "default", "lost", control.Match{}))
	if all, err := d.Deployments(d.ctx, root, "default", control.ListDeployments{}); err != nil || len(all) != 0 {
		t.Errorf("%d deployments wait for an agent that is gone, %v", len(all), err)
	}
	d.wantEvent(t, "default", "DeletionAbandoned")
}
