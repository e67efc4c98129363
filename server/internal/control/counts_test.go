package control_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// wide is a deployment on more agents than its view shows: one has failed, one is healthy, and the rest never
// connected.
func (d *fixture) wide(t *testing.T) {
	t.Helper()
	agents := map[string]fleet.Agent{}
	for i := range control.FirstTargets + 20 {
		name := fmt.Sprintf("agent-%03d", i)
		agents[name] = d.enroll(t, "default", name, nil)
	}
	d.deploy(t, "default", "wide", "default")
	d.render(t, "default", "wide", "1")
	targets := d.targets(t, "default", "wide")
	ok(t, d.store.Update(d.ctx, func(tx store.Tx) error {
		for name, o := range map[string]fleet.Observed{
			"agent-005": {Sync: fleet.SyncSynced, Health: fleet.HealthCurrent},
			"agent-110": {Sync: fleet.SyncFailed, Health: fleet.HealthFailed, Message: "forbidden"},
		} {
			a := agents[name]
			o.Version, o.Digest, o.AsOf = targets[name].Desired.Version, targets[name].Desired.Digest, d.clock.Now()
			if err := connect(d.ctx, tx, a); err != nil {
				return err
			}
			if _, err := tx.Targets().SetObserved(d.ctx, a.TenantID, []store.AgentReport{
				{Agent: a.ID, Report: store.Report{Target: targets[name].ID, Observed: o}},
			}); err != nil {
				return err
			}
		}
		return nil
	}))
}

func connect(ctx context.Context, tx store.Tx, a fleet.Agent) error {
	return tx.Connections().Put(ctx, fleet.Connection{
		SessionID: fleet.NewSessionID(), TenantID: a.TenantID, AgentID: a.ID, Replica: "0", ConnectedAt: a.CreatedAt, LastSeenAt: a.CreatedAt,
	})
}

// covers: T1, T8 (a page does not grow with the number of agents)
func TestDeploymentOnManyAgentsIsListedByCounts(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.wide(t)
	list, err := d.Deployments(d.ctx, root, "default", control.ListDeployments{})
	ok(t, err)
	want := control.TargetCounts{
		Targets: control.FirstTargets + 20, Ready: 1, Never: control.FirstTargets + 18,
		Sync:      map[fleet.SyncState]int{fleet.SyncSynced: 1, fleet.SyncFailed: 1, fleet.SyncPending: control.FirstTargets + 18},
		Health:    map[fleet.Health]int{fleet.HealthCurrent: 1, fleet.HealthFailed: 1, fleet.HealthUnknown: control.FirstTargets + 18},
		SyncSince: d.clock.Now(), HealthSince: d.clock.Now(),
	}
	if diff := cmp.Diff(want, list[0].Counts); diff != "" || list[0].Targets != nil {
		t.Errorf("%d targets are listed; counts (-want +got):\n%s", len(list[0].Targets), diff)
	}
	if v := list[0]; v.Sync != fleet.SyncFailed || v.Health != fleet.HealthFailed || v.Message != "agent-110: forbidden; 118 agents have never connected" {
		t.Errorf("it reads %s, %s, %q: not as its worst target", v.Sync, v.Health, v.Message)
	}
	one, err := d.Deployment(d.ctx, root, "default", "wide")
	ok(t, err)
	if diff := cmp.Diff(want, one.Counts); diff != "" || len(one.Targets) != control.FirstTargets || one.Targets[0].AgentName != "agent-000" {
		t.Errorf("%d targets are shown; counts (-want +got):\n%s", len(one.Targets), diff)
	}
	cases := map[string]store.TargetFilter{
		"agent-110": {Sync: fleet.SyncFailed}, "agent-005": {Health: fleet.HealthCurrent}, "agent-042": {Agent: "agent-042", Stale: ptr(false)},
		"agent-119": {Page: store.Page{After: "agent-118"}},
	}
	for agent, f := range cases {
		found, err := d.Targets(d.ctx, root, "default", "wide", f)
		ok(t, err)
		if len(found) != 1 || found[0].AgentName != agent {
			t.Errorf("%+v finds %d, and not just %s", f, len(found), agent)
		}
	}
}
