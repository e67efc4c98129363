package control_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// manual makes the deployment "app" manual.
func manual(ctx context.Context, t failer, s *control.Service) {
	t.Helper()
	_, err := s.UpdateDeployment(ctx, root, "default", "app", control.UpdateDeployment{Policy: &fleet.Policy{Prune: true, Manual: true}}, control.Match{})
	ok(t, err)
}

// The last kept revision need not be the running one: a sync to a tag keeps one too.
func TestBecomingManualPinsWhatRunsAndNotWhatWasKeptLast(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	ok(t, r.repo.Tag(t.Context(), "v1", "first"))
	ok(t, r.repo.Push(t.Context(), "refs/tags/v1"))
	second := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")})
	r.deploy(t, "app", "app")
	r.await(t, "app", atCommit(second))
	run := r.awaitRun(t, r.sync(t, "v1").ID, inPhase(fleet.RunRunning))
	r.report(t, paris, r.target(t, paris), fleet.SyncSynced)
	r.awaitRun(t, run.ID, inPhase(fleet.RunSucceeded))
	ok(t, release(t, r))
	r.await(t, "app", func(d control.DeploymentView) error {
		if d.Targets[0].Desired.Commit != second {
			return fmt.Errorf("released, it is at %+v", d.Targets[0].Desired)
		}
		return nil
	})
	before := r.target(t, paris).Desired
	manual(t.Context(), t, r.Service)
	if after := r.target(t, paris).Desired; after.Version != before.Version || after.Digest != before.Digest {
		t.Errorf("it ran %+v, and becoming manual gave it %+v", before, after)
	}
	d, err := r.Deployment(t.Context(), admin, "default", "app")
	ok(t, err)
	if d.Pin.Commit != second {
		t.Errorf("it is pinned to %+v, not to commit %s", d.Pin, second)
	}
}

// A render during a suspension runs nowhere: becoming manual does not choose it.
func TestBecomingManualWhileHeldChoosesNothing(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "paris", nil)
	d.deploy(t, "default", "app", "default")
	d.render(t, "default", "app", "1")
	before := d.targets(t, "default", "app")["paris"].Desired
	_, err := d.SuspendEnvironment(d.ctx, root, "default", "default", "audit")
	ok(t, err)
	d.rendered(t, "default", "app", configMap("a", "2"))
	manual(d.ctx, t, d.Service)
	_, err = d.ResumeEnvironment(d.ctx, root, "default", "default")
	ok(t, err)
	if after := d.targets(t, "default", "app")["paris"].Desired; after.Version != before.Version || after.Digest != before.Digest {
		t.Errorf("it ran %+v, and has %+v without a run", before, after)
	}
	if pin := d.view(t, "app").Pin; pin.Active() {
		t.Errorf("it is pinned to %+v", pin)
	}
}

// A user who pins a deployment and then makes it manual wants it to stay there.
func TestBecomingManualKeepsAPin(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "paris", nil)
	d.deploy(t, "default", "app", "default")
	first := d.render(t, "default", "app", "1")
	d.render(t, "default", "app", "2")
	d.rollback(t, 1)
	before := d.targets(t, "default", "app")["paris"].Desired
	manual(d.ctx, t, d.Service)
	after := d.targets(t, "default", "app")["paris"].Desired
	if after.Digest != first || after.Version != before.Version || d.view(t, "app").Pin.Revision != 1 {
		t.Errorf("it was pinned at %+v, and has %+v", before, after)
	}
}
