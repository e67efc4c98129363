package control_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// The webhook is lost, and the next poll is an hour away: a requested sync means the current content of Git. An
// automated deployment gets it as after a push, and so does one that shares its folder.
func TestSyncNowAfterALostWebhook(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	before := r.deployed(t, paris)
	commit, err := r.repo.CommitAndPush(t.Context(), map[string]string{"app/cm.yaml": configMap("a", "2")}, "lost")
	ok(t, err)
	run := r.awaitRun(t, r.sync(t, "").ID, func(run fleet.SyncRun) error {
		if run.Phase == fleet.RunPending {
			return inPhase(fleet.RunRunning)(run)
		}
		return nil
	})
	target := r.target(t, paris)
	if run.Phase != fleet.RunRunning || run.Commit != commit || target.Desired.Commit != commit || target.Desired.Generation != before.Desired.Generation+1 {
		t.Fatalf("the run is %s at %q (%s), and the target has %+v", run.Phase, run.Commit, run.Message, target.Desired)
	}
	r.report(t, paris, target, fleet.SyncSynced)
	r.awaitRun(t, run.ID, inPhase(fleet.RunSucceeded))
	d := r.await(t, "app", atCommit(commit))
	if d.Pin.Active() || d.Sync != fleet.SyncSynced {
		t.Errorf("it reads %s, pinned to %+v: %s", d.Sync, d.Pin, d.Message)
	}
}

// A sync after a push that cannot be rendered shows the error as after any push.
func TestSyncNowAfterALostWebhookOfABadCommit(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	before := r.deployed(t, paris)
	_, err := r.repo.CommitAndPush(t.Context(), map[string]string{"app/bad.yaml": "{not yaml"}, "lost")
	ok(t, err)
	r.awaitRun(t, r.sync(t, "").ID, inPhase(fleet.RunFailed))
	var d control.DeploymentView
	d, err = r.Deployment(t.Context(), admin, "default", "app")
	ok(t, err)
	if d.SourceError == "" || r.target(t, paris).Desired.Version != before.Desired.Version {
		t.Errorf("its error is %q, and its target has %+v", d.SourceError, r.target(t, paris).Desired)
	}
}
