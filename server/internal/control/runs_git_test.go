package control_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/control"
)

func (r *replica) sync(t *testing.T, revision string) fleet.SyncRun {
	t.Helper()
	run, err := r.CreateRun(t.Context(), admin, "default", "app", control.CreateRun{Revision: revision})
	ok(t, err)
	return run
}

// awaitRun waits until a run satisfies check.
func (r *replica) awaitRun(t *testing.T, id fleet.RunID, check func(fleet.SyncRun) error) fleet.SyncRun {
	t.Helper()
	var run fleet.SyncRun
	testkit.Eventually(t, patience, func(ctx context.Context) (err error) {
		if run, err = r.Run(ctx, admin, "default", id); err != nil {
			return err
		}
		return check(run)
	})
	return run
}

func inPhase(phase fleet.RunPhase) func(fleet.SyncRun) error {
	return func(run fleet.SyncRun) error {
		if run.Phase != phase {
			return fmt.Errorf("it is %s: %q", run.Phase, run.Message)
		}
		return nil
	}
}

// covers: A16 (manual deployments wait for a run)
func TestAManualDeploymentWaitsForARun(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	first := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
		Name: "app", Source: fleet.Source{RepoURL: r.url, Path: "app"}, Policy: &fleet.Policy{Prune: true, Manual: true},
	})
	ok(t, err)
	d := r.await(t, "app", atCommit(first))
	if d.Targets[0].Desired.Digest != "" || d.Sync != fleet.SyncOutOfSync || !strings.Contains(d.Held.Message, "sync run") {
		t.Fatalf("before any run: %s, held %q, %+v", d.Sync, d.Held, d.Targets[0].Desired)
	}
	run := r.awaitRun(t, r.sync(t, "").ID, inPhase(fleet.RunRunning))
	if run.Commit != first {
		t.Errorf("it syncs to %q", run.Commit)
	}
	r.report(t, paris, r.target(t, paris), fleet.SyncSynced)
	r.awaitRun(t, run.ID, inPhase(fleet.RunSucceeded))
	// The next commit waits again, also for an agent that joins later.
	second := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")})
	d = r.await(t, "app", atCommit(second))
	if d.Targets[0].Desired.Commit != first || d.Sync != fleet.SyncOutOfSync {
		t.Fatalf("a commit was sent without a run: %s, %+v", d.Sync, d.Targets[0].Desired)
	}
	rome := r.target(t, r.enroll(t, "rome"))
	if rome.Desired.Commit != first {
		t.Errorf("an agent that comes later has %+v", rome.Desired)
	}
	r.awaitRun(t, r.sync(t, "").ID, inPhase(fleet.RunRunning))
	if got := r.target(t, paris).Desired.Commit; got != second {
		t.Errorf("the second run sent %q", got)
	}
	// Automated, it follows immediately.
	third := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "3")})
	_, err = r.UpdateDeployment(t.Context(), admin, "default", "app", control.UpdateDeployment{Policy: &fleet.Policy{Prune: true}}, control.Match{})
	ok(t, err)
	r.await(t, "app", func(d control.DeploymentView) error {
		if d.Targets[0].Desired.Commit != third || !d.Held.IsZero() {
			return fmt.Errorf("held %q, at %+v", d.Held, d.Targets[0].Desired)
		}
		return nil
	})
}

// covers: A16 (sync to a revision, which pins)
func TestASyncToAnotherRevisionPins(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	first := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	ok(t, r.repo.Tag(t.Context(), "v1", "first"))
	ok(t, r.repo.Push(t.Context(), "refs/tags/v1"))
	second := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")})
	r.deploy(t, "app", "app")
	r.await(t, "app", atCommit(second))
	run := r.sync(t, "v1")
	behind := r.sync(t, "") // asked for before the other one has pinned it
	run = r.awaitRun(t, run.ID, inPhase(fleet.RunRunning))
	d, err := r.Deployment(t.Context(), admin, "default", "app")
	ok(t, err)
	if run.Commit != first || d.Targets[0].Desired.Commit != first || !strings.Contains(d.Held.Message, "pinned") || d.Rendered.Commit != second {
		t.Fatalf("run %+v, held %q, %+v", run, d.Held, d.Targets[0].Desired)
	}
	r.report(t, paris, r.target(t, paris), fleet.SyncSynced)
	r.awaitRun(t, run.ID, inPhase(fleet.RunSucceeded))
	if got := r.awaitRun(t, behind.ID, inPhase(fleet.RunFailed)); !strings.Contains(got.Message, "release it") {
		t.Errorf("a sync to the newest of what is pinned: %q", got.Message)
	}
	missing := r.awaitRun(t, r.sync(t, "nope").ID, inPhase(fleet.RunFailed))
	if !strings.Contains(missing.Message, `"nope"`) {
		t.Errorf("a revision that is not there: %q", missing.Message)
	}
	ok(t, release(t, r))
	r.await(t, "app", func(d control.DeploymentView) error {
		if d.Targets[0].Desired.Commit != second {
			return fmt.Errorf("at %+v", d.Targets[0].Desired)
		}
		return nil
	})
}

func release(t *testing.T, r *replica) error {
	t.Helper()
	_, err := r.ReleaseDeployment(t.Context(), admin, "default", "app")
	return err
}

func TestARunThatCannotBeRenderedFailsAndSaysWhy(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	good := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	r.deploy(t, "app", "app")
	before := r.await(t, "app", atCommit(good))
	r.push(t, map[string]string{"app/bad.yaml": "{not yaml"})
	run := r.awaitRun(t, r.sync(t, "").ID, inPhase(fleet.RunFailed))
	if !strings.Contains(run.Message, "app/bad.yaml") {
		t.Errorf("got %q", run.Message)
	}
	d, err := r.Deployment(t.Context(), admin, "default", "app")
	ok(t, err)
	if d.Targets[0].Desired.Version != before.Targets[0].Desired.Version {
		t.Errorf("the running state changed: %+v", d.Targets[0].Desired)
	}
	if len(d.Operations) == 0 || d.Operations[0].ID != run.OperationID {
		t.Errorf("the failure is not shown on the deployment: %+v", d.Operations)
	}
}

// covers: A17 (rollback with Git unreachable); a sync waits for Git instead.
func TestWithGitDownARollbackWorksAndASyncWaits(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	first := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	r.deploy(t, "app", "app")
	r.await(t, "app", atCommit(first))
	second := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")})
	r.await(t, "app", atCommit(second))
	r.git.SetDown(true)
	waiting := r.sync(t, r.repo.Branch())
	r.awaitRun(t, waiting.ID, func(run fleet.SyncRun) error {
		if run.Phase != fleet.RunPending || !strings.Contains(run.Message, r.url) {
			return fmt.Errorf("it is %s: %q", run.Phase, run.Message)
		}
		return nil
	})
	_, err := r.TerminateRun(t.Context(), admin, "default", waiting.ID, control.Match{})
	ok(t, err)
	run, err := r.Rollback(t.Context(), admin, "default", "app", control.Rollback{Commit: first[:12]})
	ok(t, err)
	if got := r.target(t, paris).Desired; run.Phase != fleet.RunRunning || got.Commit != first {
		t.Fatalf("the rollback is %s, and the target has %+v", run.Phase, got)
	}
	r.report(t, paris, r.target(t, paris), fleet.SyncSynced)
	r.awaitRun(t, run.ID, inPhase(fleet.RunSucceeded))
	waiting = r.sync(t, r.repo.Branch())
	r.git.SetDown(false)
	r.awaitRun(t, waiting.ID, inPhase(fleet.RunRunning)) // by the retry alone
}

// Invariant 4: a manual deployment whose agent is ahead does not change until a run requests it.
func TestAManualDeploymentThatIsRewoundWaitsForARun(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
		Name: "app", Source: fleet.Source{RepoURL: r.url, Path: "app"}, Policy: &fleet.Policy{Prune: true, Manual: true},
	})
	ok(t, err)
	run := r.awaitRun(t, r.sync(t, "").ID, inPhase(fleet.RunRunning))
	r.report(t, paris, r.target(t, paris), fleet.SyncSynced)
	r.awaitRun(t, run.ID, inPhase(fleet.RunSucceeded))
	before := r.target(t, paris)
	ok(t, r.AgentAhead(t.Context(), paris, before.ID, fleet.Version{Epoch: 1, Generation: 41}))
	// Whatever is looked at after the rewind was looked at with it.
	commit := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")})
	d := r.await(t, "app", atCommit(commit))
	if got := d.Targets[0]; got.Desired.Version != before.Desired.Version || got.View.Sync != fleet.SyncRewound {
		t.Fatalf("without a run it went to %+v (%s)", got.Desired, got.View.Sync)
	}
	run = r.awaitRun(t, r.sync(t, "").ID, inPhase(fleet.RunRunning))
	after := r.target(t, paris)
	if after.Desired.Generation != 42 || !after.Desired.HoldPrune || after.Desired.Commit != commit {
		t.Fatalf("the run gave it %+v", after.Desired)
	}
	r.report(t, paris, after, fleet.SyncSynced)
	r.awaitRun(t, run.ID, inPhase(fleet.RunSucceeded))
	if len(r.list(t)) != 1 {
		t.Error("the deployment is gone")
	}
}

// An agent with a dry run, or that only reports drift, has finished: the run does not wait for more, and the
// deployment shows its state.
func TestARunEndsWithWhatIsLeftOutOfSync(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	first := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
		Name: "app", Source: fleet.Source{RepoURL: r.url, Path: "app"}, Policy: &fleet.Policy{Prune: true, DryRun: true},
	})
	ok(t, err)
	r.await(t, "app", atCommit(first))
	run := r.awaitRun(t, r.sync(t, "").ID, inPhase(fleet.RunRunning))
	r.report(t, paris, r.target(t, paris), fleet.SyncOutOfSync)
	r.awaitRun(t, run.ID, inPhase(fleet.RunSucceeded))
	found, err := r.Deployments(t.Context(), admin, "default", control.ListDeployments{Sync: fleet.SyncOutOfSync})
	ok(t, err)
	if len(found) != 1 || found[0].Sync != fleet.SyncOutOfSync || found[0].Counts.Sync[fleet.SyncOutOfSync] != 1 {
		t.Errorf("it reads %+v", found)
	}
}
