package control_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// handsOver returns the hand-overs of the targets of a deployment: "reason deployment: objects".
func (r *replica) handsOver(ctx context.Context, name string) ([]string, error) {
	var out []string
	err := r.store.View(ctx, func(tx store.Tx) error {
		t, err := tx.Tenants().ByName(ctx, "default")
		if err != nil {
			return err
		}
		targets, err := tx.Targets().HandingOver(ctx, t.ID)
		for _, target := range targets {
			if target.DeploymentName != name {
				continue
			}
			for _, h := range target.Desired.HandOvers {
				line := fmt.Sprintf("%s %s: everything", h.Reason, h.Deployment)
				if h.Objects != nil {
					line = fmt.Sprintf("%s %s: %s", h.Reason, h.Deployment, strings.Join(h.Objects, ", "))
				}
				out = append(out, line)
			}
		}
		return err
	})
	slices.Sort(out)
	return slices.Compact(out), err
}

func (r *replica) awaitHandOver(t *testing.T, name string, want ...string) {
	t.Helper()
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		got, err := r.handsOver(ctx, name)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err == nil && diff != "" {
			err = fmt.Errorf("deployment %q hands over (-want +got):\n%s", name, diff)
		}
		return err
	})
}

// moved makes two deployments, a with the objects one and two and b with three, and returns the agent.
func (r *replica) moved(t *testing.T) fleet.Agent {
	t.Helper()
	paris := r.enroll(t, "paris")
	commit := r.push(t, map[string]string{
		"a/one.yaml": configMap("one", "1"), "a/two.yaml": configMap("two", "1"), "b/three.yaml": configMap("three", "1"),
	})
	for _, name := range []string{"a", "b"} {
		r.deploy(t, name, name)
		r.report(t, paris, r.await(t, name, atCommit(commit)).Targets[0].Target, fleet.SyncSynced)
	}
	return paris
}

// move pushes a commit that moves object two from a to b.
func (r *replica) move(t *testing.T) string {
	t.Helper()
	return r.push(t, map[string]string{"a/two.yaml": gitserver.Deleted, "b/two.yaml": configMap("two", "1")})
}

// covers: A14
func TestAnObjectThatMovesIsNamedToWhoLosesIt(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *testDatabase) {
		r := newReplicas(t, db, 1, control.Config{})[0]
		paris := r.moved(t)
		commit := r.move(t)
		a, b := r.await(t, "a", atCommit(commit)), r.await(t, "b", atCommit(commit))
		r.awaitHandOver(t, "a", "HandOverPending b: ConfigMap default/two")
		r.awaitHandOver(t, "b")
		r.report(t, paris, b.Targets[0].Target, fleet.SyncSynced)
		r.report(t, paris, a.Targets[0].Target, fleet.SyncSynced)
		// b has it, so that no target waits with the next change of a.
		commit = r.push(t, map[string]string{"a/one.yaml": configMap("one", "2")})
		r.await(t, "a", atCommit(commit))
		r.awaitHandOver(t, "a")
	})
}

// covers: A14 (a taker that does not take)
func TestAnObjectIsHandedOverToWhoeverWantsItAndCannotTakeIt(t *testing.T) {
	t.Parallel()
	for name, hinder := range map[string]func(*testing.T, *replica){
		"manual": func(t *testing.T, r *replica) {
			r.editPolicy(t, "b", func(p *fleet.Policy) { p.Manual = true })
		},
		"suspended": func(t *testing.T, r *replica) {
			_, err := r.SuspendDeployment(t.Context(), admin, "default", "b", "incident")
			ok(t, err)
		},
		"dry run": func(t *testing.T, r *replica) {
			r.editPolicy(t, "b", func(p *fleet.Policy) { p.DryRun = true })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplicas(t, newSQLite(t), 1, control.Config{})[0]
			r.moved(t)
			hinder(t, r)
			commit := r.move(t)
			r.await(t, "a", atCommit(commit))
			r.awaitHandOver(t, "a", "HandOverPending b: ConfigMap default/two")
			// b no longer wants it: then no deployment does.
			r.push(t, map[string]string{"b/two.yaml": gitserver.Deleted})
			r.awaitHandOver(t, "a")
		})
	}
}

// covers: A14, A17 (an object that is no longer kept would be deleted during a suspension)
func TestASuspendedDeploymentKeepsItsHandOvers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *testDatabase) {
		r := newReplicas(t, db, 1, control.Config{})[0]
		r.moved(t)
		commit := r.move(t)
		before := r.await(t, "a", atCommit(commit)).Targets[0].Desired.Version
		r.awaitHandOver(t, "a", "HandOverPending b: ConfigMap default/two")
		_, err := r.SuspendDeployment(t.Context(), admin, "default", "a", "incident")
		ok(t, err)
		commit = r.push(t, map[string]string{"b/two.yaml": gitserver.Deleted, "b/three.yaml": configMap("three", "2")})
		r.await(t, "b", atCommit(commit)) // written in the same transaction as the hand-overs to b
		r.awaitHandOver(t, "a", "HandOverPending b: ConfigMap default/two")
		if after := r.await(t, "a", func(control.DeploymentView) error { return nil }).Targets[0].Desired.Version; after != before {
			t.Errorf("a suspended deployment went from %v to %v", before, after)
		}
		_, err = r.ResumeDeployment(t.Context(), admin, "default", "a")
		ok(t, err)
		r.awaitHandOver(t, "a")
	})
}

// covers: A14 (invalid YAML in the taker's folder)
func TestWhatLeavesWaitsForADeploymentThatCannotBeEvaluated(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, newSQLite(t), 1, control.Config{})[0]
	paris := r.moved(t)
	commit := r.push(t, map[string]string{"a/two.yaml": gitserver.Deleted, "b/two.yaml": "kind: [", "a/one.yaml": configMap("one", "2")})
	r.await(t, "a", atCommit(commit)) // nothing else of it is held up
	r.awaitHandOver(t, "a", "NotEvaluated b: ConfigMap default/two")
	// What leaves by a commit that does not touch b has nothing to do with that.
	commit = r.push(t, map[string]string{"a/one.yaml": gitserver.Deleted, "a/four.yaml": configMap("four", "1")})
	r.await(t, "a", atCommit(commit))
	r.awaitHandOver(t, "a", "NotEvaluated b: ConfigMap default/two")
	commit = r.push(t, map[string]string{"b/two.yaml": configMap("two", "1")})
	b := r.await(t, "b", atCommit(commit))
	r.awaitHandOver(t, "a", "HandOverPending b: ConfigMap default/two")
	r.report(t, paris, b.Targets[0].Target, fleet.SyncSynced)
	r.push(t, map[string]string{"b/two.yaml": gitserver.Deleted})
	r.awaitHandOver(t, "a")
}

// covers: A14 (more deployments than one transaction writes)
func TestAnObjectThatMovesIsNamedWhateverTheNumberOfDeployments(t *testing.T) {
	t.Parallel()
	const n = 100
	r := newReplicas(t, newSQLite(t), 1, control.Config{})[0]
	r.enroll(t, "paris")
	files, moves := map[string]string{}, map[string]string{}
	name := func(i int) string { return fmt.Sprintf("app-%03d", i%n) }
	for i := range n {
		files[fmt.Sprintf("%s/own.yaml", name(i))] = configMap("own-"+name(i), "1")
		files[fmt.Sprintf("%s/moves.yaml", name(i))] = configMap(fmt.Sprintf("moves-%03d", i), "1")
		// Each gives its object to the one after the next ones, the last ones to the first.
		moves[fmt.Sprintf("%s/moves.yaml", name(i+70))] = configMap(fmt.Sprintf("moves-%03d", i), "1")
	}
	commit := r.push(t, files)
	for i := range n {
		r.deploy(t, name(i), name(i))
	}
	for i := range n {
		r.await(t, name(i), atCommit(commit))
	}
	commit = r.push(t, moves)
	for i := range n {
		r.await(t, name(i), atCommit(commit))
		r.awaitHandOver(t, name(i), fmt.Sprintf("HandOverPending %s: ConfigMap default/moves-%03d", name(i+70), i))
	}
}

// covers: A14 (a deployment that the same commit declares)
func TestAnObjectThatMovesToADeploymentOfTheSameCommitIsNamed(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, newSQLite(t), 1, control.Config{})[0]
	r.enroll(t, "paris")
	commit := r.push(t, map[string]string{
		kedgeFile("paris"): declares("a"), "a/one.yaml": configMap("one", "1"), "a/two.yaml": configMap("two", "1"),
	})
	r.configure(t, "paris")
	r.await(t, "paris.a", atCommit(commit))
	commit = r.push(t, map[string]string{kedgeFile("paris"): declares("a", "b"), "a/two.yaml": gitserver.Deleted, "b/two.yaml": configMap("two", "1")})
	r.await(t, "paris.a", atCommit(commit))
	r.awaitHandOver(t, "paris.a", "HandOverPending paris.b: ConfigMap default/two")
}

// covers: A14 (renamed in the file that declares it)
func TestARenamedDeploymentHandsEverythingOver(t *testing.T) {
	t.Parallel()
	for name, mark := range map[string]string{"whose objects would be deleted": "!", "whose objects would be released": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplicas(t, newSQLite(t), 1, control.Config{})[0]
			paris := r.enroll(t, "paris")
			file := func(deployment, path string) string {
				text := declares(deployment + mark)
				return strings.Replace(text, "{path: "+deployment+"}", "{path: "+path+"}", 1)
			}
			commit := r.push(t, map[string]string{
				kedgeFile("paris"): file("a", "x"), "x/one.yaml": configMap("one", "1"), "x/two.yaml": configMap("two", "1"),
			})
			r.configure(t, "paris")
			r.report(t, paris, r.await(t, "paris.a", atCommit(commit)).Targets[0].Target, fleet.SyncSynced)
			commit = r.push(t, map[string]string{kedgeFile("paris"): file("b", "x"), "x/two.yaml": gitserver.Deleted})
			r.await(t, "paris.b", atCommit(commit))
			r.awaitHandOver(t, "paris.a", "HandOverPending paris.b: ConfigMap default/one")
		})
	}
}

// editPolicy changes the policy of a deployment.
func (r *replica) editPolicy(t *testing.T, name string, change func(*fleet.Policy)) {
	t.Helper()
	d, err := r.Deployment(t.Context(), admin, "default", name)
	ok(t, err)
	change(&d.Policy)
	_, err = r.UpdateDeployment(t.Context(), admin, "default", name, control.UpdateDeployment{Policy: &d.Policy}, control.Match{})
	ok(t, err)
}
