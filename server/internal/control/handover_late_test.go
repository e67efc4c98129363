package control_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// keeps asserts that a deployment hands object two over, for a reason.
func (r *replica) keeps(t *testing.T, name string, reason fleet.Reason) {
	t.Helper()
	got, err := r.handsOver(t.Context(), name)
	ok(t, err)
	for _, line := range got {
		if strings.HasPrefix(line, string(reason)) && (strings.HasSuffix(line, "everything") || strings.Contains(line, "two")) {
			return
		}
	}
	t.Errorf("%s hands over %q, want object two because of %s", name, got, reason)
}

// brokenMove pushes a commit that moves object two from a to b, which cannot be read.
func (r *replica) brokenMove(t *testing.T) string {
	t.Helper()
	commit := r.push(t, map[string]string{"a/two.yaml": gitserver.Deleted, "b/two.yaml": configMap("two", "1"), "b/broken.yaml": "kind: ["})
	r.await(t, "a", atCommit(commit))
	r.await(t, "b", saying("broken.yaml"))
	return commit
}

// covers: A14
func TestADeploymentThatComesLaterToACommitKeepsWhatABrokenOneMayWant(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]struct {
		before, after func(t *testing.T, r *replica)
	}{
		"suspended": {
			func(t *testing.T, r *replica) {
				t.Helper()
				_, err := r.SuspendDeployment(t.Context(), admin, "default", "a", "incident")
				ok(t, err)
			},
			func(t *testing.T, r *replica) {
				t.Helper()
				_, err := r.ResumeDeployment(t.Context(), admin, "default", "a")
				ok(t, err)
			},
		},
		"manual": {
			func(t *testing.T, r *replica) {
				t.Helper()
				r.editPolicy(t, "a", func(p *fleet.Policy) { p.Manual = true })
			},
			func(t *testing.T, r *replica) {
				t.Helper()
				_, err := r.CreateRun(t.Context(), admin, "default", "a", control.CreateRun{})
				ok(t, err)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplicas(t, newSQLite(t), 1, control.Config{})[0]
			r.moved(t)
			late.before(t, r)
			commit := r.brokenMove(t)
			late.after(t, r)
			r.await(t, "a", everyTargetAt(commit))
			r.keeps(t, "a", fleet.ReasonNotEvaluated)
		})
	}
}

// A giver that was broken itself comes to the commit with a later one, which touches no other deployment.
//
// covers: A14
func TestADeploymentThatIsMendedKeepsWhatABrokenOneMayWant(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, newSQLite(t), 1, control.Config{})[0]
	r.moved(t)
	r.push(t, map[string]string{"a/broken.yaml": "kind: [", "a/two.yaml": gitserver.Deleted, "b/two.yaml": configMap("two", "1"), "b/broken.yaml": "kind: ["})
	r.await(t, "a", saying("broken.yaml"))
	r.await(t, "b", saying("broken.yaml"))
	commit := r.push(t, map[string]string{"a/broken.yaml": gitserver.Deleted})
	r.await(t, "a", everyTargetAt(commit))
	r.keeps(t, "a", fleet.ReasonNotEvaluated)
	commit = r.push(t, map[string]string{"b/broken.yaml": gitserver.Deleted})
	r.await(t, "b", everyTargetAt(commit))
	r.keeps(t, "a", fleet.ReasonHandOverPending)
}

// b cannot be built before the commit already, and the commit changes what b has not come to read.
//
// covers: A14
func TestABrokenDeploymentThatACommitTouchesMayWantWhatItRemoves(t *testing.T) {
	t.Parallel()
	r, _ := newBuildingReplica(t)
	paris := r.enroll(t, "paris")
	commit := r.push(t, map[string]string{
		"a/one.yaml": configMap("one", "1"), "a/two.yaml": configMap("two", "1"), "c/one.yaml": configMap("c-one", "1"), "c/gone.yaml": configMap("c-gone", "1"),
		"b/kustomization.yaml":       "resources: [first, second]\n",
		"b/first/kustomization.yaml": "resources: [cm.yaml]\n", "b/first/cm.yaml": configMap("first", "1"),
		"b/second/kustomization.yaml": "resources: [cm.yaml]\n", "b/second/cm.yaml": configMap("second", "1"),
	})
	for _, name := range []string{"a", "b"} {
		r.deploy(t, name, name)
		r.report(t, paris, r.await(t, name, everyTargetAt(commit)).Targets[0].Target, fleet.SyncSynced)
	}
	r.push(t, map[string]string{"b/first/kustomization.yaml": "resources: [missing.yaml]\n"})
	r.await(t, "b", saying("missing.yaml"))
	commit = r.push(t, map[string]string{
		"a/two.yaml":                  gitserver.Deleted,
		"b/second/kustomization.yaml": "resources: [cm.yaml, two.yaml]\n", "b/second/two.yaml": configMap("two", "1"),
	})
	r.await(t, "a", everyTargetAt(commit))
	r.keeps(t, "a", fleet.ReasonNotEvaluated)
}

// A broken deployment that a commit does not affect delays no other.
//
// covers: A14
func TestABrokenDeploymentThatACommitDoesNotTouchKeepsNothing(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, newSQLite(t), 1, control.Config{})[0]
	r.moved(t)
	r.push(t, map[string]string{"b/broken.yaml": "kind: ["})
	r.await(t, "b", saying("broken.yaml"))
	commit := r.push(t, map[string]string{"a/two.yaml": gitserver.Deleted})
	r.await(t, "a", everyTargetAt(commit))
	if got, err := r.handsOver(t.Context(), "a"); err != nil || len(got) > 0 {
		t.Errorf("a hands over %v, %v", got, err)
	}
}

// covers: A14, F2
func TestAMistakeInAFileKeepsWhatItsDeploymentsMayWant(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, newSQLite(t), 1, control.Config{})[0]
	r.enroll(t, "paris")
	commit := r.push(t, map[string]string{
		kedgeFile("paris"): declares("a"), "a/one.yaml": configMap("one", "1"), "a/two.yaml": configMap("two", "1"),
	})
	r.configure(t, "paris")
	r.await(t, "paris.a", atCommit(commit))
	commit = r.push(t, map[string]string{
		kedgeFile("paris"): declares("a", "b") + "mistake: true\n", "a/two.yaml": gitserver.Deleted, "b/two.yaml": configMap("two", "1"),
	})
	r.await(t, "paris.a", everyTargetAt(commit))
	r.keeps(t, "paris.a", fleet.ReasonCommitNotEvaluated)
	r.push(t, map[string]string{kedgeFile("paris"): declares("a", "b")})
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		got, err := r.handsOver(ctx, "paris.a")
		if err == nil && (len(got) != 1 || !strings.HasPrefix(got[0], string(fleet.ReasonHandOverPending))) {
			err = fmt.Errorf("a hands over %q, want object two for b", got)
		}
		return err
	})
}

// A deployment whose submodule cannot be fetched holds up no other.
//
// covers: A14
func TestADeploymentThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	lib, err := r.git.CreateHosted("lib")
	ok(t, err)
	pinned, err := lib.CommitAndPush(t.Context(), map[string]string{"cm.yaml": configMap("lib", "1")}, "lib")
	ok(t, err)
	first := r.push(t, map[string]string{
		"a/one.yaml": configMap("one", "1"), "a/two.yaml": configMap("two", "1"), "c/own.yaml": configMap("own", "1"),
		"app/lib": gitserver.Gitlink(pinned), ".gitmodules": "[submodule \"lib\"]\n\tpath = app/lib\n\turl = ../lib.git\n",
	})
	r.deploy(t, "a", "a")
	r.await(t, "a", atCommit(first))
	yes := true
	r.change(t, control.UpdateRepository{Submodules: &yes})
	r.deploy(t, "lib", "app/lib")
	r.await(t, "lib", atCommit(first))
	ok(t, r.git.Remove("lib"))
	r.push(t, map[string]string{"app/lib": gitserver.Gitlink(strings.Repeat("1", 40))})
	r.awaitProblem(t, "repository not found or not readable")
	second := r.push(t, map[string]string{"a/two.yaml": gitserver.Deleted, "a/one.yaml": configMap("one", "2")})
	r.await(t, "a", everyTargetAt(second))
	r.keeps(t, "a", fleet.ReasonNotEvaluated)
}

func (r *replica) desiredVersion(t *testing.T, id fleet.TargetID) fleet.Version {
	t.Helper()
	var out fleet.Version
	ok(t, r.store.View(t.Context(), func(tx store.Tx) error {
		tenant, err := tx.Tenants().ByName(t.Context(), "default")
		if err != nil {
			return err
		}
		target, err := tx.Targets().Get(t.Context(), tenant.ID, id)
		out = target.Desired.Version
		return err
	}))
	return out
}

// covers: A14
func TestWhatADeletedDeploymentKeepsForAnotherOneCanBeConfirmed(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, newSQLite(t), 1, control.Config{})[0]
	paris := r.enroll(t, "paris")
	commit := r.push(t, map[string]string{"x/one.yaml": configMap("one", "1"), "x/two.yaml": configMap("two", "1")})
	r.deploy(t, "a", "x")
	a := r.await(t, "a", everyTargetAt(commit)).Targets[0].Target
	r.report(t, paris, a, fleet.SyncSynced)
	for name, policy := range map[string]fleet.Policy{"preview": {Prune: true, DryRun: true}, "manual": {Prune: true, Manual: true}} {
		_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
			Name: name, Source: fleet.Source{RepoURL: r.url, Path: "x"}, Policy: &policy,
		})
		ok(t, err)
		r.await(t, name, atCommit(commit))
	}
	_, err := r.DeleteDeployment(t.Context(), admin, "default", "a", control.Match{})
	ok(t, err)
	got, err := r.handsOver(t.Context(), "a")
	ok(t, err)
	if len(got) != 1 || !strings.Contains(got[0], "manual") {
		t.Fatalf("a hands over %q, want it to wait for the deployment that takes objects over, and for no preview", got)
	}
	report := store.Report{Target: a.ID, Full: true, Observed: fleet.Observed{
		Version: r.desiredVersion(t, a.ID), Sync: fleet.SyncSyncing, Health: fleet.HealthCurrent, AsOf: time.Now(),
	}}
	for _, name := range []string{"one", "two"} {
		report.Objects = append(report.Objects, fleet.ObjectStatus{
			ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: name}, Sync: fleet.SyncHeld, Health: fleet.HealthCurrent,
		})
	}
	ok(t, r.Report(t.Context(), []rollout.AgentReports{{Agent: paris, Reports: []store.Report{report}}}))
	held, err := r.HeldPrunes(t.Context(), admin, "default", "a", "", store.HeldObject{}, 10)
	if err != nil || len(held) != 2 || !held[0].Current {
		t.Fatalf("held: %+v, %v", held, err)
	}
	confirmed, err := r.ConfirmPrune(t.Context(), admin, "default", "a", control.ConfirmPrune{All: true, Count: 2})
	if err != nil || confirmed.Deletions != 2 {
		t.Errorf("confirmed: %+v, %v", confirmed, err)
	}
}

// Deleting a deployment is not a commit: it waits for no other broken one.
//
// covers: A14
func TestADeletedDeploymentKeepsNothingForABrokenOne(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, newSQLite(t), 1, control.Config{})[0]
	r.moved(t)
	r.push(t, map[string]string{"b/broken.yaml": "kind: ["})
	r.await(t, "b", saying("broken.yaml"))
	_, err := r.DeleteDeployment(t.Context(), admin, "default", "a", control.Match{})
	ok(t, err)
	if got, err := r.handsOver(t.Context(), "a"); err != nil || len(got) > 0 {
		t.Errorf("a hands over %v, %v", got, err)
	}
}
