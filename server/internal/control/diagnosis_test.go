package control_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func (d *fixture) diagnose(t failer) map[string]string {
	t.Helper()
	found, err := d.Diagnose(d.ctx, root, "default")
	ok(t, err)
	out := map[string]string{}
	for _, f := range found.Findings {
		out[f.Subject] += string(f.Severity) + " " + string(f.Reason) + ";"
	}
	return out
}

// covers: O4 (doctor)
func TestDiagnosisNamesWhatIsWrongAndWhatHolds(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	if diff := cmp.Diff(map[string]string{"": "problem NoAgents;"}, d.diagnose(t)); diff != "" {
		t.Errorf("nothing there yet (-want +got):\n%s", diff)
	}
	paris, rome := d.enroll(t, "default", "paris", nil), d.enroll(t, "default", "rome", nil)
	d.present(t, paris)
	d.present(t, rome)
	for _, name := range []string{"drifts", "fails", "holds", "well"} {
		d.deploy(t, "default", name, "")
		d.render(t, "default", name, "1")
	}
	d.say(t, paris, "drifts", fleet.SyncOutOfSync, "1 object was changed")
	d.say(t, paris, "fails", fleet.SyncFailed, "forbidden")
	d.say(t, paris, "well", fleet.SyncSynced, "")
	d.say(t, paris, "holds", fleet.SyncSynced, "")
	if diff := cmp.Diff(map[string]string{"drifts": "problem Drifted;", "fails": "problem SyncFailed;"}, d.diagnose(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	d.enroll(t, "default", "atlantis", nil)
	_, err := d.Freeze(d.ctx, root, "audit")
	ok(t, err)
	_, err = d.SuspendEnvironment(d.ctx, root, "default", "default", "audit")
	ok(t, err)
	d.rendered(t, "default", "well", configMap("a", "2"))
	for _, target := range d.onAgent(t, rome) {
		held := fleet.ObjectStatus{ObjectRef: fleet.ObjectRef{Kind: "ConfigMap", Namespace: "x", Name: "old"}, Sync: fleet.SyncHeld, Health: fleet.HealthCurrent}
		// An agent that holds prunes reports that it is out of sync; before that was so it said that it is in sync.
		if sync := map[string]fleet.SyncState{"well": fleet.SyncSynced, "holds": fleet.SyncOutOfSync}[target.DeploymentName]; sync != "" {
			ok(t, d.Report(d.ctx, []rollout.AgentReports{{Agent: rome, Reports: []store.Report{{
				Target: target.ID, Full: true, Objects: []fleet.ObjectStatus{held},
				Observed: fleet.Observed{Version: target.Desired.Version, Digest: target.Desired.Digest, Sync: sync, Health: fleet.HealthCurrent, AsOf: d.clock.Now()},
			}}}}))
		}
	}
	want := map[string]string{
		"": "notice FleetFrozen;", "default": "notice EnvironmentSuspended;", "atlantis": "problem AgentNeverConnected;",
		"drifts": "problem Drifted;", "fails": "problem SyncFailed;", "holds": "problem PruneHeld;", "well": "problem PruneHeld;notice NewRevisionWaits;",
	}
	if diff := cmp.Diff(want, d.diagnose(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	found, err := d.Diagnose(d.ctx, root, "default")
	ok(t, err)
	for _, f := range found.Findings {
		if f.Reason == fleet.ReasonPruneHeld && f.Next != "kedge deploy prunes "+f.Subject {
			t.Errorf("what to do about held prunes of %s is %q", f.Subject, f.Next)
		}
	}
}

// A deleted deployment that waits for another one to take over an object is named when its agent has reported it.
func TestDiagnosisNamesDeletedDeploymentsThatWait(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", nil)
	d.present(t, paris)
	d.deploy(t, "default", "gone", "")
	d.render(t, "default", "gone", "1")
	report := func() {
		target := d.onAgent(t, paris)[0]
		ok(t, d.Report(d.ctx, []rollout.AgentReports{{Agent: paris, Reports: []store.Report{{
			Target: target.ID, Full: true, Objects: []fleet.ObjectStatus{{
				ObjectRef: fleet.ObjectRef{Kind: "ConfigMap", Namespace: "x", Name: "moves"}, Sync: fleet.SyncHeld, Health: fleet.HealthCurrent, Message: "deployment b wants it",
			}},
			Observed: fleet.Observed{Version: target.Desired.Version, Digest: target.Desired.Digest, Sync: fleet.SyncOutOfSync, Health: fleet.HealthCurrent, AsOf: d.clock.Now()},
		}}}}))
	}
	report()
	ok(t, result(d.DeleteDeployment(d.ctx, root, "default", "gone", control.Match{})))
	if got := d.diagnose(t); len(got) != 0 {
		t.Errorf("before the agent has reported: %v", got)
	}
	report()
	if diff := cmp.Diff(map[string]string{"gone": "problem HandOverPending;"}, d.diagnose(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRunSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris, rome := d.enroll(t, "default", "paris", nil), d.enroll(t, "default", "rome", nil)
	d.present(t, paris)
	d.deploy(t, "default", "app", "")
	d.render(t, "default", "app", "1")
	d.say(t, rome, "app", fleet.SyncSynced, "") // and is away since
	d.render(t, "default", "app", "2")
	revisions, err := d.Revisions(d.ctx, root, "default", "app", store.Page{})
	ok(t, err)
	waits := func(id fleet.RunID) map[string]fleet.Reason {
		t.Helper()
		found, more, err := d.RunWaiting(d.ctx, root, "default", id)
		ok(t, err)
		if more != 0 {
			t.Errorf("%d more", more)
		}
		out := map[string]fleet.Reason{}
		for _, w := range found {
			if w.Message == "" {
				t.Errorf("%s without a word", w.Reason)
			}
			out[w.Agent] = w.Reason
		}
		return out
	}
	_, err = d.SuspendDeployment(d.ctx, root, "default", "app", "audit")
	ok(t, err)
	first, second := d.rollback(t, revisions[1].Seq), d.rollback(t, revisions[0].Seq)
	if diff := cmp.Diff(map[string]fleet.Reason{"": fleet.ReasonSuspended}, waits(first.ID)); diff != "" {
		t.Errorf("suspended (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]fleet.Reason{"": fleet.ReasonWaitsForTurn}, waits(second.ID)); diff != "" {
		t.Errorf("second in line (-want +got):\n%s", diff)
	}
	_, err = d.ResumeDeployment(d.ctx, root, "default", "app")
	ok(t, err)
	if diff := cmp.Diff(map[string]fleet.Reason{"paris": fleet.ReasonApplying, "rome": fleet.ReasonAgentDisconnected}, waits(first.ID)); diff != "" {
		t.Errorf("running (-want +got):\n%s", diff)
	}
	d.say(t, paris, "app", fleet.SyncSynced, "")
	if diff := cmp.Diff(map[string]fleet.Reason{"rome": fleet.ReasonAgentDisconnected}, waits(first.ID)); diff != "" {
		t.Errorf("after one has answered (-want +got):\n%s", diff)
	}
}
