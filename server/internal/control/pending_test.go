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

// awaitPending waits until the newest spec of "app" is pending with a reason.
func (r *replica) awaitPending(t *testing.T, reason fleet.Reason) control.DeploymentView {
	t.Helper()
	return r.await(t, "app", func(d control.DeploymentView) error {
		if d.Pending == nil || d.Pending.Reason != reason {
			return fmt.Errorf("pending is %+v", d.Pending)
		}
		return nil
	})
}

// twoFolders deploys folder a as "app" to an agent; there is another folder b.
func twoFolders(t *testing.T) (r *replica, agent fleet.Agent, first fleet.Desired) {
	t.Helper()
	r = newReplica(t)
	agent = r.enroll(t, "paris")
	r.push(t, map[string]string{"a/cm.yaml": configMap("a", "1"), "b/cm.yaml": configMap("b", "1")})
	r.deploy(t, "app", "a")
	return r, agent, r.given(t, agent, fleet.Version{})
}

// whole is an edit of everything that a spec has.
func (r *replica) whole(path string) control.UpdateDeployment {
	req := r.source(path, "")
	req.Namespace, req.Policy, req.Labels = ptr("shop"), &fleet.Policy{Prune: true, Drift: fleet.DriftReport}, &map[string]string{"team": "x"}
	return req
}

// covers: A19, invariant 10
func TestAnEditComesIntoForceAsAWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	r, paris, first := twoFolders(t)
	r.git.SetDown(true)
	r.edit(t, r.whole("b"))
	d := r.awaitPending(t, fleet.ReasonSourceUnreadable)
	if d.Source.Path != "b" || d.InForce.Source.Path != "a" || d.Sync != fleet.SyncFailed ||
		!strings.HasPrefix(d.Message, fmt.Sprintf("spec revision %d waits for its source: ", d.SpecRevision)) {
		t.Errorf("reads %s, %q; path %q, in force %q", d.Sync, d.Message, d.Source.Path, d.InForce.Source.Path)
	}
	_, err := r.UpdateDeployment(t.Context(), admin, "default", "app", control.UpdateDeployment{Policy: &fleet.Policy{Prune: true, Force: true, Drift: fleet.DriftReport}}, seen(d))
	ok(t, err)
	_, err = r.SuspendDeployment(t.Context(), admin, "default", "app", "x")
	ok(t, err)
	_, err = r.ResumeDeployment(t.Context(), admin, "default", "app")
	ok(t, err)
	run := r.sync(t, "")
	r.awaitRun(t, run.ID, func(run fleet.SyncRun) error {
		if run.Phase != fleet.RunPending || !strings.Contains(run.Message, "waits for its source") {
			return fmt.Errorf("it is %s: %q", run.Phase, run.Message)
		}
		return nil
	})
	if got := r.target(t, paris).Desired; got.Version != first.Version {
		t.Fatalf("it was given %+v", got)
	}
	r.git.SetDown(false)
	r.push(t, map[string]string{"b/cm.yaml": configMap("b", "2")})
	got := r.given(t, paris, first.Version)
	if got.Generation != first.Generation+1 || got.Digest == first.Digest || got.Namespace != "shop" || !got.Policy.Force || got.Policy.Drift != fleet.DriftReport {
		t.Errorf("it was given %+v after %+v", got, first)
	}
	d = r.await(t, "app", func(d control.DeploymentView) error {
		if d.Pending != nil {
			return fmt.Errorf("still pending: %s", d.Message)
		}
		return nil
	})
	if d.Labels["team"] != "x" || d.SourceRevision != 2 {
		t.Errorf("in force are labels %v at source revision %d", d.Labels, d.SourceRevision)
	}
	r.awaitRun(t, run.ID, func(run fleet.SyncRun) error {
		if run.Phase == fleet.RunRunning { // it applies everything once more
			r.report(t, paris, r.target(t, paris), fleet.SyncSynced)
		}
		if run.Phase != fleet.RunSucceeded {
			return fmt.Errorf("it is %s: %q", run.Phase, run.Message)
		}
		return nil
	})
}

// covers: A19
func TestASourceThatCannotBeUsedLeavesTheSpecInForce(t *testing.T) {
	t.Parallel()
	r, paris, first := twoFolders(t)
	r.push(t, map[string]string{"b/cm.yaml": "kind: {"})
	r.edit(t, r.whole("b"))
	d := r.awaitPending(t, fleet.ReasonSourceNotRendered)
	if d.SourceError != "" {
		t.Errorf("the spec in force is said to be wrong: %q", d.SourceError)
	}
	run := r.sync(t, "")
	r.awaitRun(t, run.ID, func(run fleet.SyncRun) error {
		if run.Phase != fleet.RunFailed || !strings.Contains(run.Message, "b/cm.yaml") {
			return fmt.Errorf("it is %s: %q", run.Phase, run.Message)
		}
		return nil
	})
	// The spec in force still follows its own source.
	r.push(t, map[string]string{"a/cm.yaml": configMap("a", "2")})
	second := r.given(t, paris, first.Version)
	if second.Namespace != "default" || second.Policy.Drift != "" || second.Digest == first.Digest {
		t.Fatalf("the spec in force gives %+v", second)
	}
	r.awaitPending(t, fleet.ReasonSourceNotRendered)
	r.push(t, map[string]string{"b/cm.yaml": configMap("b", "3")})
	third := r.given(t, paris, second.Version)
	if third.Namespace != "shop" || third.Policy.Drift != fleet.DriftReport || third.Generation != second.Generation+1 {
		t.Errorf("then it gives %+v", third)
	}
	r.looked(t)
}

// covers: A19
func TestAnEditThatIsTakenBackChangesNothing(t *testing.T) {
	t.Parallel()
	r, paris, first := twoFolders(t)
	r.git.SetDown(true)
	r.edit(t, r.whole("b"))
	d := r.awaitPending(t, fleet.ReasonSourceUnreadable)
	back := r.source("a", "")
	back.Namespace, back.Policy, back.Labels = ptr("default"), &fleet.Policy{Prune: true}, &map[string]string{}
	r.edit(t, back)
	after, err := r.Deployment(t.Context(), admin, "default", "app")
	ok(t, err)
	if after.Pending != nil || after.SpecRevision <= d.SpecRevision || r.target(t, paris).Desired.Version != first.Version {
		t.Errorf("pending is %+v, spec %d after %d", after.Pending, after.SpecRevision, d.SpecRevision)
	}
	// With the source of the spec in force, the rest needs no render, and takes effect immediately.
	r.edit(t, r.whole("b"))
	r.edit(t, func() control.UpdateDeployment {
		back.Policy = &fleet.Policy{}
		return back
	}())
	if got := r.target(t, paris).Desired; got.Policy.Prune || got.Digest != first.Digest || got.Generation != first.Generation+1 {
		t.Errorf("got %+v", got)
	}
}

// covers: A19
func TestAHoldAndItsSourceAreReleasedTogether(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	good := r.push(t, map[string]string{"a/cm.yaml": configMap("a", "good")})
	r.deploy(t, "app", "a")
	first := r.given(t, paris, fleet.Version{})
	r.edit(t, control.UpdateDeployment{Policy: &fleet.Policy{Prune: true, Manual: true}})
	bad := r.push(t, map[string]string{"a/cm.yaml": configMap("bad", "1")})
	r.await(t, "app", atCommit(bad))
	r.git.SetDown(true)
	req := r.source("a", good)
	req.Policy = &fleet.Policy{Prune: true, Drift: fleet.DriftReport}
	r.edit(t, req)
	r.awaitPending(t, fleet.ReasonSourceUnreadable)
	if got := r.target(t, paris).Desired; got.Version != first.Version {
		t.Fatalf("it was given %+v", got)
	}
	r.git.SetDown(false)
	r.push(t, map[string]string{"a/cm.yaml": configMap("bad", "2")})
	got := r.given(t, paris, first.Version)
	if got.Digest != first.Digest || got.Generation != first.Generation+1 || got.Policy.Drift != fleet.DriftReport {
		t.Errorf("it was given %+v after %+v", got, first)
	}
}

// covers: A19
func TestAManualTargetKeepsItsBundleAndItsPolicyTogether(t *testing.T) {
	t.Parallel()
	r, paris, _ := twoFolders(t)
	r.edit(t, control.UpdateDeployment{Policy: &fleet.Policy{Prune: true, Manual: true}})
	first := r.target(t, paris).Desired
	req := r.whole("b")
	req.Policy.Manual = true
	r.edit(t, req)
	r.looked(t)
	if got := r.target(t, paris).Desired; got.Version != first.Version {
		t.Fatalf("it was given %+v", got)
	}
	// A change without a render is for the source in force, which this target does not have.
	r.edit(t, control.UpdateDeployment{Policy: &fleet.Policy{Manual: true, Force: true}})
	if got := r.target(t, paris).Desired; got.Version != first.Version {
		t.Fatalf("it was given %+v", got)
	}
	r.sync(t, "")
	got := r.given(t, paris, first.Version)
	if got.Namespace != "shop" || !got.Policy.Force || got.Policy.Prune || got.Digest == first.Digest {
		t.Errorf("a run gives %+v", got)
	}
	// A rollback is chosen under the spec in force.
	_, err := r.Rollback(t.Context(), admin, "default", "app", control.Rollback{Revision: 1})
	ok(t, err)
	if back := r.given(t, paris, got.Version); back.Digest != first.Digest || back.Namespace != "shop" || !back.Policy.Force {
		t.Errorf("a rollback gives %+v", back)
	}
}

// covers: A19
func TestARollbackNeedsNoPendingSpec(t *testing.T) {
	t.Parallel()
	r, paris, first := twoFolders(t)
	r.push(t, map[string]string{"a/cm.yaml": configMap("a", "2")})
	second := r.given(t, paris, first.Version)
	r.git.SetDown(true)
	r.edit(t, r.whole("b"))
	r.awaitPending(t, fleet.ReasonSourceUnreadable)
	_, err := r.Rollback(t.Context(), admin, "default", "app", control.Rollback{Revision: 1})
	ok(t, err)
	third := r.given(t, paris, second.Version)
	if third.Digest != first.Digest || third.Namespace != "default" || third.Policy.Drift != "" {
		t.Fatalf("the rollback gives %+v", third)
	}
	r.git.SetDown(false)
	r.push(t, map[string]string{"b/cm.yaml": configMap("b", "2")})
	r.looked(t)
	if got := r.target(t, paris).Desired; got.Version != third.Version {
		t.Fatalf("the pin does not hold: %+v", got)
	}
	ok(t, release(t, r))
	if got := r.given(t, paris, third.Version); got.Namespace != "shop" || got.Policy.Drift != fleet.DriftReport || got.Digest == third.Digest {
		t.Errorf("the release gives %+v", got)
	}
}

// covers: A19
func TestAnEditOfTheEnvironmentBringsNothingOfTheOldSource(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris, boston := r.enrollIn(t, "paris", "eu"), r.enrollIn(t, "boston", "us")
	for _, region := range []string{"eu", "us"} {
		_, err := r.CreateEnvironment(t.Context(), admin, "default", control.CreateEnvironment{Name: region, MatchLabels: map[string]string{"region": region}})
		ok(t, err)
	}
	r.push(t, map[string]string{"a/paris/cm.yaml": configMap("a", "1"), "b/boston/cm.yaml": configMap("b", "1")})
	_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
		Name: "app", Environment: "eu", Source: fleet.Source{RepoURL: r.url, Path: "a/{agent.name}"},
	})
	ok(t, err)
	first := r.given(t, paris, fleet.Version{})
	r.git.SetDown(true)
	req := r.source("b/{agent.name}", "")
	req.Environment = ptr("us")
	r.edit(t, req)
	d := r.awaitPending(t, fleet.ReasonSourceUnreadable)
	if len(d.Targets) != 1 || d.Targets[0].Desired.Version != first.Version || !d.Targets[0].DetachedAt.IsZero() {
		t.Fatalf("placed again before its source was read: %+v", d.Targets)
	}
	wantConflict(t, r.DeleteEnvironment(t.Context(), admin, "default", "us", control.Match{}), "app")
	// A suspension of the environment at the time of the read does not drop the edit.
	_, err = r.SuspendEnvironment(t.Context(), admin, "default", "eu", "audit")
	ok(t, err)
	r.git.SetDown(false)
	r.push(t, map[string]string{"c": "c"})
	r.awaitPending(t, fleet.ReasonSpecRefused)
	_, err = r.ResumeEnvironment(t.Context(), admin, "default", "eu")
	ok(t, err)
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		d, err := r.Deployment(ctx, admin, "default", "app")
		if err != nil {
			return err
		}
		for _, target := range d.Targets {
			if target.AgentID == boston.ID && target.Desired.Digest != "" && target.Desired.Generation == 1 && target.Desired.Digest != first.Digest {
				return nil
			}
		}
		return fmt.Errorf("targets are %+v; %s", d.Targets, d.Message)
	})
}

// covers: A19
func TestAnEditMovesToAnotherRepositoryOnceThatIsRendered(t *testing.T) {
	t.Parallel()
	r, paris, first := twoFolders(t)
	other, err := r.git.CreateHosted("other")
	ok(t, err)
	req := r.whole("x")
	req.Source.RepoURL = r.git.URL("other")
	r.edit(t, req)
	d := r.awaitPending(t, fleet.ReasonSourceUnreadable) // it is empty
	wantConflict(t, r.DeleteRepository(t.Context(), admin, "default", d.Pending.RepositoryID, control.Match{}), "or their pending specs")
	r.push(t, map[string]string{"a/cm.yaml": configMap("a", "2")})
	second := r.given(t, paris, first.Version)
	if second.Namespace != "default" {
		t.Errorf("the spec in force gives %+v", second)
	}
	_, err = other.CommitAndPush(t.Context(), map[string]string{"x/cm.yaml": configMap("x", "1")}, "first")
	ok(t, err)
	ok(t, r.Push(t.Context(), d.Pending.RepositoryID, "refs/heads/main"))
	if got := r.given(t, paris, second.Version); got.Namespace != "shop" || got.Generation != second.Generation+1 {
		t.Errorf("it was given %+v", got)
	}
	r.looked(t)
	// Nothing of the old repository counts any more.
	before := r.target(t, paris).Desired.Version
	r.push(t, map[string]string{"a/cm.yaml": configMap("a", "3")})
	_, err = other.CommitAndPush(t.Context(), map[string]string{"x/cm.yaml": configMap("x", "2")}, "second")
	ok(t, err)
	ok(t, r.Push(t.Context(), d.Pending.RepositoryID, "refs/heads/main"))
	if got := r.given(t, paris, before); got.Generation != before.Generation+1 {
		t.Errorf("it was given %+v", got)
	}
}
