package control_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// staged is a deployment on two agents with three kept revisions; they have the third.
func staged(t *testing.T) (d *fixture, paris, rome fleet.Agent, digests []string) {
	t.Helper()
	d = newFixture(t)
	paris, rome = d.enroll(t, "default", "paris", map[string]string{"in": "yes"}), d.enroll(t, "default", "rome", map[string]string{"in": "yes"})
	_, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "in", MatchLabels: map[string]string{"in": "yes"}})
	ok(t, err)
	d.deploy(t, "default", "app", "in")
	for _, value := range []string{"1", "2", "3"} {
		digests = append(digests, d.render(t, "default", "app", value))
	}
	for _, agent := range []fleet.Agent{paris, rome} {
		d.say(t, agent, "app", fleet.SyncSynced, "")
	}
	return d, paris, rome, digests
}

func (d *fixture) rollback(t failer, revision int64) fleet.SyncRun {
	t.Helper()
	run, err := d.Rollback(d.ctx, root, "default", "app", control.Rollback{Revision: revision})
	ok(t, err)
	return run
}

func (d *fixture) run(t failer, id fleet.RunID) fleet.SyncRun {
	t.Helper()
	run, err := d.Run(d.ctx, root, "default", id)
	ok(t, err)
	return run
}

// covers: A16 (one after another, in order)
func TestRunsOfADeploymentGoOneAfterAnother(t *testing.T) {
	t.Parallel()
	d, paris, rome, digests := staged(t)
	first, second, third := d.rollback(t, 1), d.rollback(t, 2), d.rollback(t, 1)
	if first.Phase != fleet.RunRunning || second.Phase != fleet.RunPending || third.Phase != fleet.RunPending {
		t.Fatalf("begun as %s, %s, %s", first.Phase, second.Phase, third.Phase)
	}
	for i, step := range []struct {
		run    fleet.SyncRun
		digest string
	}{{first, digests[0]}, {second, digests[1]}, {third, digests[0]}} {
		for _, agent := range []fleet.Agent{paris, rome} {
			if got := d.run(t, step.run.ID).Phase; got != fleet.RunRunning {
				t.Fatalf("run %d is %s before %s has answered", i, got, agent.Name)
			}
			if got := d.targets(t, "default", "app")[agent.Name].Desired.Digest; got != step.digest {
				t.Fatalf("run %d: %s was given %s", i, agent.Name, got)
			}
			d.say(t, agent, "app", fleet.SyncSynced, "")
		}
		got := d.run(t, step.run.ID)
		if got.Phase != fleet.RunSucceeded || got.FinishedAt.IsZero() || d.operation(t, got.OperationID).State != fleet.OperationCompleted {
			t.Fatalf("run %d ended as %+v", i, got)
		}
	}
}

// covers: A16
// defect: B6, B12
func TestARunFailsWhenAllHaveAnsweredAndOneFailed(t *testing.T) {
	t.Parallel()
	d, paris, rome, _ := staged(t)
	run := d.rollback(t, 1)
	d.say(t, paris, "app", fleet.SyncFailed, "quota exceeded")
	if got := d.run(t, run.ID); got.Phase != fleet.RunRunning {
		t.Fatalf("it did not wait for rome: %+v", got)
	}
	d.say(t, rome, "app", fleet.SyncSynced, "")
	got := d.run(t, run.ID)
	if got.Phase != fleet.RunFailed || !strings.Contains(got.Message, "paris: quota exceeded") || strings.Contains(got.Message, "rome") {
		t.Fatalf("got %+v", got)
	}
	if o := d.operation(t, run.OperationID); o.State != fleet.OperationFailed || o.Message != got.Message {
		t.Errorf("its operation is %+v", o)
	}
}

// A report of an older version, or one that is not about syncing, does not finish a run.
//
// defect: B15
func TestARunWaitsForItsOwnVersion(t *testing.T) {
	t.Parallel()
	d, paris, rome, _ := staged(t)
	old := d.targets(t, "default", "app")
	run := d.rollback(t, 1)
	d.sayOf(t, paris, old["paris"], fleet.SyncSynced, "")
	d.say(t, rome, "app", fleet.SyncSyncing, "")
	if got := d.run(t, run.ID); got.Phase != fleet.RunRunning {
		t.Fatalf("got %+v", got)
	}
}

// covers: A16 (terminate)
func TestTerminatedRunsLetTheNextOneStart(t *testing.T) {
	t.Parallel()
	d, _, _, digests := staged(t)
	first, second, third := d.rollback(t, 1), d.rollback(t, 2), d.rollback(t, 1)
	got, err := d.TerminateRun(d.ctx, root, "default", third.ID, control.Match{})
	ok(t, err)
	if got.Phase != fleet.RunTerminated || !got.StartedAt.IsZero() {
		t.Fatalf("a pending one: %+v", got)
	}
	got, err = d.TerminateRun(d.ctx, root, "default", first.ID, control.Match{})
	ok(t, err)
	if got.Phase != fleet.RunTerminated || !strings.Contains(got.Message, "root") || d.operation(t, got.OperationID).State != fleet.OperationFailed {
		t.Fatalf("a running one: %+v", got)
	}
	if got := d.run(t, second.ID); got.Phase != fleet.RunRunning {
		t.Fatalf("the next one: %+v", got)
	}
	if got := d.targets(t, "default", "app")["paris"].Desired.Digest; got != digests[1] {
		t.Errorf("paris was given %s", got)
	}
	_, err = d.TerminateRun(d.ctx, root, "default", first.ID, control.Match{})
	ok(t, err) // once more changes nothing
}

// covers: A16 (editing a started one is refused)
func TestOnlyARunThatHasNotStartedCanBeEdited(t *testing.T) {
	t.Parallel()
	d, _, _, _ := staged(t)
	started := d.rollback(t, 1)
	waiting, err := d.CreateRun(d.ctx, root, "default", "app", control.CreateRun{Revision: "v1"})
	ok(t, err)
	_, err = d.UpdateRun(d.ctx, root, "default", started.ID, control.UpdateRun{Revision: "v2"}, control.Match{})
	wantConflict(t, err, "has started")
	waiting, err = d.UpdateRun(d.ctx, root, "default", waiting.ID, control.UpdateRun{Revision: "v2"}, control.Match{})
	ok(t, err)
	if waiting.Revision != "v2" || waiting.Phase != fleet.RunPending {
		t.Errorf("got %+v", waiting)
	}
	_, err = d.UpdateRun(d.ctx, root, "default", waiting.ID, control.UpdateRun{Revision: "--evil"}, control.Match{})
	wantInvalid(t, err, "revision")
}

// covers: A16 (agents that leave are not waited for)
func TestARunWaitsForNobodyWhoHasLeft(t *testing.T) {
	t.Parallel()
	leave := map[string]func(*fixture) error{
		"Detached": func(d *fixture) error {
			_, err := d.UpdateAgent(d.ctx, root, "default", "rome", control.UpdateAgent{Labels: &map[string]string{}}, control.Match{})
			return err
		},
		"Deleted": func(d *fixture) error { return d.DeleteAgent(d.ctx, root, "default", "rome", control.Match{}) },
	}
	for name, left := range leave {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/beforeTheOther=%v", name, before), func(t *testing.T) {
				t.Parallel()
				d, paris, _, _ := staged(t)
				run := d.rollback(t, 1)
				if before {
					ok(t, left(d))
				}
				d.say(t, paris, "app", fleet.SyncSynced, "")
				if !before {
					ok(t, left(d))
				}
				if got := d.run(t, run.ID); got.Phase != fleet.RunSucceeded {
					t.Fatalf("got %+v", got)
				}
			})
		}
	}
}

// covers: T2 (never orphaned)
func TestRunsEndWithTheirDeployment(t *testing.T) {
	t.Parallel()
	d, _, _, _ := staged(t)
	running, waiting := d.rollback(t, 1), d.rollback(t, 2)
	_, err := d.DeleteDeployment(d.ctx, root, "default", "app", control.Match{})
	ok(t, err)
	for _, run := range []fleet.SyncRun{running, waiting} {
		if o := d.operation(t, run.OperationID); o.State != fleet.OperationFailed || !strings.Contains(o.Message, "deleted") {
			t.Errorf("the operation of run %d is %+v", run.Seq, o)
		}
	}
}

// covers: A17 (rollback without Git, pinned until released)
func TestARollbackPinsUntilItIsReleased(t *testing.T) {
	t.Parallel()
	d, paris, rome, digests := staged(t)
	d.rollback(t, 1)
	for _, agent := range []fleet.Agent{paris, rome} {
		d.say(t, agent, "app", fleet.SyncSynced, "")
	}
	newest := d.rendered(t, "default", "app", configMap("a", "4"))
	d.enroll(t, "default", "oslo", map[string]string{"in": "yes"})
	for agent, target := range d.targets(t, "default", "app") {
		if target.Desired.Digest != digests[0] {
			t.Errorf("%s is not at the pinned revision: %+v", agent, target.Desired)
		}
	}
	v := d.view(t, "app")
	if v.Sync != fleet.SyncOutOfSync || !strings.Contains(v.Held.Message, "pinned to revision 1") || v.Pin.By != "root" {
		t.Errorf("reads %s, held %q", v.Sync, v.Held)
	}
	_, err := d.CreateRun(d.ctx, root, "default", "app", control.CreateRun{})
	wantConflict(t, err, "pinned to revision 1")
	v, err = d.ReleaseDeployment(d.ctx, root, "default", "app")
	ok(t, err)
	if !v.Held.IsZero() || v.Pin.Active() {
		t.Errorf("after the release: held %q, %+v", v.Held, v.Pin)
	}
	for agent, target := range d.targets(t, "default", "app") {
		if target.Desired.Digest != newest {
			t.Errorf("%s does not follow again: %+v", agent, target.Desired)
		}
	}
	last := d.lastChange(t)
	_, err = d.ReleaseDeployment(d.ctx, root, "default", "app")
	ok(t, err)
	if d.lastChange(t) != last {
		t.Error("releasing twice changes something")
	}
}

func TestRollbackByCommitAndToWhatIsNotKept(t *testing.T) {
	t.Parallel()
	d, _, _, _ := staged(t)
	for name, tc := range map[string]struct {
		req   control.Rollback
		field string
	}{
		"Neither": {control.Rollback{}, "revision"},
		"Both":    {control.Rollback{Revision: 1, Commit: "ccccccc"}, "revision"},
		"Unknown": {control.Rollback{Revision: 99}, "revision"},
		"Commit":  {control.Rollback{Commit: "deadbeef"}, "commit"},
		"Short":   {control.Rollback{Commit: "cc"}, "commit"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.Rollback(d.ctx, root, "default", "app", tc.req)
			wantInvalid(t, err, tc.field)
		})
	}
	run, err := d.Rollback(d.ctx, root, "default", "app", control.Rollback{Commit: "ccccccc"})
	ok(t, err)
	if run.Kept != 3 {
		t.Errorf("of several revisions of one commit it took %d, not the newest", run.Kept)
	}
}

func TestRevisionsAreKeptUpToANumberAndThePinnedOneAlways(t *testing.T) {
	t.Parallel()
	d, _, _, _ := staged(t)
	d.rollback(t, 1)
	for i := range 12 {
		d.render(t, "default", "app", fmt.Sprint("more", i))
	}
	kept, err := d.Revisions(d.ctx, root, "default", "app", store.Page{})
	ok(t, err)
	if len(kept) != 11 || kept[0].Seq != 15 || kept[len(kept)-1].Seq != 1 {
		t.Errorf("kept: %+v", kept)
	}
	runs, err := d.Runs(d.ctx, root, "default", "app", store.RunFilter{})
	ok(t, err)
	if len(runs) != 1 || runs[0].Deployment != "app" {
		t.Errorf("runs: %+v", runs)
	}
}
