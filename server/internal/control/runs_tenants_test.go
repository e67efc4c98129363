package control_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// Two tenants have an agent, an environment, and a deployment of the same names. A sync run of one, which is not finished,
// does not delay the run of the other, and an answer for one does not finish the other.
//
// defect: B15
func TestEqualNamesOfTwoTenantsDoNotBlockEachOther(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	tenants := []string{"red", "blue"}
	agents, runs := map[string]fleet.Agent{}, map[string]fleet.SyncRun{}
	for _, tenant := range tenants {
		d.tenant(t, tenant)
		agents[tenant] = d.enroll(t, tenant, "paris", nil)
		_, err := d.CreateEnvironment(d.ctx, root, tenant, control.CreateEnvironment{Name: "prod", Agents: []string{"paris"}})
		ok(t, err)
		d.deploy(t, tenant, "app", "prod")
		for _, value := range []string{"1", "2"} {
			d.render(t, tenant, "app", value)
		}
		d.say(t, agents[tenant], "app", fleet.SyncSynced, "")
	}
	phase := func(tenant string) fleet.RunPhase {
		t.Helper()
		run, err := d.Run(d.ctx, root, tenant, runs[tenant].ID)
		ok(t, err)
		return run.Phase
	}
	for _, tenant := range tenants {
		run, err := d.Rollback(d.ctx, root, tenant, "app", control.Rollback{Revision: 1})
		ok(t, err)
		if runs[tenant] = run; run.Phase != fleet.RunRunning {
			t.Errorf("the run of %s is %s: %s", tenant, run.Phase, run.Message)
		}
	}
	d.say(t, agents["blue"], "app", fleet.SyncSynced, "")
	if red, blue := phase("red"), phase("blue"); red != fleet.RunRunning || blue != fleet.RunSucceeded {
		t.Errorf("after the answer of blue, red is %s and blue is %s", red, blue)
	}
	// The other way round, a run that waits for another of its own tenant does not wait for that of the other tenant.
	next, err := d.Rollback(d.ctx, root, "red", "app", control.Rollback{Revision: 2})
	ok(t, err)
	if next.Phase != fleet.RunPending {
		t.Errorf("the second run of red is %s, want it to wait for the first", next.Phase)
	}
	if next, err = d.Rollback(d.ctx, root, "blue", "app", control.Rollback{Revision: 2}); err != nil || next.Phase != fleet.RunRunning {
		t.Errorf("the second run of blue is %s: %v", next.Phase, err)
	}
}
