package control_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// present makes an agent connected.
func (d *fixture) present(t failer, a fleet.Agent) {
	t.Helper()
	ok(t, d.store.Update(d.ctx, func(tx store.Tx) error {
		return tx.Connections().Put(d.ctx, fleet.Connection{
			SessionID: fleet.NewSessionID(), TenantID: a.TenantID, AgentID: a.ID, Replica: "0", Version: "test", ConnectedAt: a.CreatedAt, LastSeenAt: a.CreatedAt,
		})
	}))
}

func TestAgentThatNeverConnectedIsCountedAndHidesNothing(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris, rome := d.enroll(t, "default", "paris", nil), d.enroll(t, "default", "rome", nil)
	d.enroll(t, "default", "atlantis", nil)
	d.deploy(t, "default", "web", "")
	d.render(t, "default", "web", "1")
	if v := d.view(t, "web"); v.Sync != fleet.SyncPending || v.Health != fleet.HealthUnknown || v.Message != `atlantis: agent "atlantis" has never connected` {
		t.Errorf("while no agent has connected it reads %s, %s, %q", v.Sync, v.Health, v.Message)
	}
	for _, a := range []fleet.Agent{paris, rome} {
		d.present(t, a)
		d.say(t, a, "web", fleet.SyncSynced, "")
	}
	read := func(what string, sync fleet.SyncState, message string) {
		t.Helper()
		v := d.view(t, "web")
		if v.Sync != sync || v.Health != fleet.HealthCurrent || v.Message != message {
			t.Errorf("%s: it reads %s, %s, %q", what, v.Sync, v.Health, v.Message)
		}
		if diff := cmp.Diff(control.TargetCounts{Targets: 3, Ready: 2, Never: 1, HeldBack: v.Counts.HeldBack, Sync: v.Counts.Sync, Health: v.Counts.Health, SyncSince: v.Counts.SyncSince, HealthSince: v.Counts.HealthSince}, v.Counts); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", what, diff)
		}
	}
	read("two are synced", fleet.SyncSynced, "1 agent has never connected")
	_, err := d.SuspendDeployment(d.ctx, root, "default", "web", "audit")
	ok(t, err)
	held := d.view(t, "web").Held.Message
	read("suspended", fleet.SyncSynced, held+"; 1 agent has never connected")
	d.rendered(t, "default", "web", configMap("a", "2"))
	read("suspended, with a newer revision", fleet.SyncOutOfSync, "paris: a newer revision is available: "+held+"; 1 agent has never connected")
}

// An unhealthy target is shown first, independent of the name of its agent; doctor shows the same.
func TestTheMessageIsThatOfTheTargetThatIsNotHealthy(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	good, bad := d.enroll(t, "default", "amsterdam", nil), d.enroll(t, "default", "bad", nil)
	d.enroll(t, "default", "atlantis", nil)
	d.deploy(t, "default", "web", "")
	d.render(t, "default", "web", "1")
	for _, a := range []fleet.Agent{good, bad} {
		d.present(t, a)
		d.say(t, a, "web", fleet.SyncSynced, "")
	}
	for _, health := range []fleet.Health{fleet.HealthInProgress, fleet.HealthFailed} {
		target := d.targets(t, "default", "web")["bad"]
		ok(t, d.Report(d.ctx, []rollout.AgentReports{{Agent: bad, Reports: []store.Report{{Target: target.ID, Full: true, Observed: fleet.Observed{
			Version: target.Desired.Version, Digest: target.Desired.Digest, Sync: fleet.SyncSynced, Health: health, Message: "pods unschedulable", AsOf: d.clock.Now(),
		}}}}}))
		const want = "bad: pods unschedulable; 1 agent has never connected"
		if v := d.view(t, "web"); v.Sync != fleet.SyncSynced || v.Health != health || v.Message != want {
			t.Errorf("it reads %s, %s, %q, want %q", v.Sync, v.Health, v.Message, want)
		}
	}
	found, err := d.Diagnose(d.ctx, root, "default")
	ok(t, err)
	for _, f := range found.Findings {
		if f.Reason == fleet.ReasonUnhealthy && !strings.Contains(f.Message, "bad: pods unschedulable") {
			t.Errorf("doctor says %q", f.Message)
		}
	}
}

func TestCommitThatRunsIsToldFromTheNewest(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	r.connect(t, paris, "0")
	first := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	r.deploy(t, "app", "app")
	if v := r.await(t, "app", atCommit(first)); v.Running != first || v.RunningOther != 0 {
		t.Errorf("%q and %d others run, want %q", v.Running, v.RunningOther, first)
	}
	_, err := r.SuspendDeployment(t.Context(), admin, "default", "app", "audit")
	ok(t, err)
	second := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")})
	if v := r.await(t, "app", atCommit(second)); v.Running != first || v.Counts.HeldBack != 1 {
		t.Errorf("while it is suspended %q runs, and %d targets are held back; want %q and 1", v.Running, v.Counts.HeldBack, first)
	}
}

func TestEventsOfSuspensionsHaveWords(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.deploy(t, "default", "web", "")
	_, err := d.SuspendDeployment(d.ctx, root, "default", "web", "")
	ok(t, err)
	_, err = d.ResumeDeployment(d.ctx, root, "default", "web")
	ok(t, err)
	_, err = d.SuspendDeployment(d.ctx, root, "default", "web", "audit")
	ok(t, err)
	events, err := d.Events(d.ctx, root, "default", store.EventFilter{Deployment: "web"})
	ok(t, err)
	var got []string
	for _, e := range events {
		if e.Reason == "DeploymentEdited" {
			got = append(got, e.Message)
		}
	}
	want := []string{`deployment "web": suspended, by root`, `deployment "web": resumed, by root`, `deployment "web": suspended: audit, by root`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if strings.Contains(strings.Join(got, "\n"), ": ,") {
		t.Error("an event has an empty word")
	}
}
