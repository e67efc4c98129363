package control_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// say reports the state of an agent for the desired state of a target.
func (d *fixture) say(t failer, agent fleet.Agent, deployment string, sync fleet.SyncState, message string) {
	t.Helper()
	for _, target := range d.onAgent(t, agent) {
		if target.DeploymentName == deployment {
			d.sayOf(t, agent, target, sync, message)
		}
	}
}

func (d *fixture) sayOf(t failer, agent fleet.Agent, target fleet.Target, sync fleet.SyncState, message string) {
	t.Helper()
	ok(t, d.Report(d.ctx, []rollout.AgentReports{{Agent: agent, Reports: []store.Report{{
		Target: target.ID, Full: true, Observed: fleet.Observed{
			Version: target.Desired.Version, Digest: target.Desired.Digest, Sync: sync, Health: fleet.HealthCurrent, Message: message, AsOf: d.clock.Now(),
		},
	}}}}))
}

// onAgent returns every row of an agent, including those of deleted deployments.
func (d *fixture) onAgent(t failer, agent fleet.Agent) []fleet.Target {
	t.Helper()
	var out []fleet.Target
	ok(t, d.store.View(d.ctx, func(tx store.Tx) (err error) {
		out, err = tx.Targets().OfAgentAllTenants(d.ctx, agent.ID)
		return err
	}))
	return out
}

func (d *fixture) view(t failer, name string) control.DeploymentView {
	t.Helper()
	v, err := d.Deployment(d.ctx, root, "default", name)
	ok(t, err)
	return v
}

func (d *fixture) operation(t failer, id fleet.OperationID) fleet.Operation {
	t.Helper()
	o, err := d.Operation(d.ctx, root, "default", id)
	ok(t, err)
	return o
}

func ptr[T any](v T) *T { return &v }

// seen returns the Match of a caller that has read v.
func seen(v control.DeploymentView) control.Match {
	return control.Match{ID: string(v.ID), SpecRevision: v.SpecRevision}
}

// A reused name starts with the same number: only the id distinguishes the two.
//
// covers: T1 (ETag)
func TestWhatWasSeenOfAPredecessorIsStale(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	first := d.deploy(t, "default", "app", "default")
	_, err := d.DeleteDeployment(d.ctx, root, "default", "app", seen(first))
	ok(t, err)
	second := d.deploy(t, "default", "app", "default")
	if first.SpecRevision != second.SpecRevision {
		t.Fatalf("the numbers are %d and %d, which would tell them apart by themselves", first.SpecRevision, second.SpecRevision)
	}
	if _, err := d.DeleteDeployment(d.ctx, root, "default", "app", seen(first)); !errors.Is(err, control.ErrStale) {
		t.Errorf("deleting the second by what was seen of the first gives %v", err)
	}
	_, err = d.DeleteDeployment(d.ctx, root, "default", "app", seen(second))
	ok(t, err)
}

// covers: T4
func TestTheSameEditTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "paris", nil)
	d.deploy(t, "default", "app", "default")
	d.render(t, "default", "app", "1")
	was := d.view(t, "app")
	edits := map[string]control.UpdateDeployment{
		"labels":    {Labels: &map[string]string{"team": "shop"}},
		"source":    {Source: &fleet.Source{RepoURL: was.Source.RepoURL, Path: "/other/", Revision: "HEAD", Variables: map[string]string{"a": "1"}}},
		"namespace": {Namespace: ptr("shop")},
		"policy":    {Policy: &fleet.Policy{Prune: false, Adopt: true}},
		"nothing":   {},
		"the same":  {Labels: &map[string]string{}, Environment: ptr("default"), Namespace: ptr("default"), Policy: &fleet.Policy{Prune: true}, Source: &was.Source},
	}
	for _, name := range []string{"the same", "nothing", "labels", "source", "namespace", "policy"} {
		before := d.view(t, "app")
		first, err := d.UpdateDeployment(d.ctx, root, "default", "app", edits[name], seen(before))
		ok(t, err)
		if raised := first.SpecRevision > before.SpecRevision; raised != (name != "nothing" && name != "the same") {
			t.Fatalf("%s: spec went from %d to %d", name, before.SpecRevision, first.SpecRevision)
		}
		last := d.lastChange(t)
		second, err := d.UpdateDeployment(d.ctx, root, "default", "app", edits[name], seen(first))
		ok(t, err)
		if diff := cmp.Diff(first, second); diff != "" || d.lastChange(t) != last {
			t.Fatalf("%s: the second time something changed:\n%s", name, diff)
		}
	}
	if _, err := d.UpdateDeployment(d.ctx, root, "default", "app", edits["labels"], control.Match{ID: string(was.ID), SpecRevision: 1}); !errors.Is(err, control.ErrStale) {
		t.Errorf("an old If-Match gives %v", err)
	}
}

func TestEditsThatAnAgentHasToKnowOfGiveANewGeneration(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		edit   control.UpdateDeployment
		moved  bool
	}{
		"Namespace": {"objects go elsewhere", control.UpdateDeployment{Namespace: ptr("shop")}, true},
		"Prune":     {"the agent prunes", control.UpdateDeployment{Policy: &fleet.Policy{}}, true},
		"Labels":    {"labels are for people", control.UpdateDeployment{Labels: &map[string]string{"a": "b"}}, false},
		"Manual":    {"how it is synced is the server's business", control.UpdateDeployment{Policy: &fleet.Policy{Prune: true, Manual: true}}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.enroll(t, "default", "paris", nil)
			d.deploy(t, "default", "app", "default")
			d.render(t, "default", "app", "1")
			before := d.targets(t, "default", "app")["paris"].Desired
			d.edit(t, "default", "app", tc.edit)
			after := d.targets(t, "default", "app")["paris"].Desired
			if moved := after.Version != before.Version; moved != tc.moved || after.Digest != before.Digest {
				t.Errorf("%s: went from %+v to %+v", tc.reason, before, after)
			}
		})
	}
}

func TestAnotherEnvironmentPlacesAgain(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "paris", map[string]string{"region": "eu"})
	d.enroll(t, "default", "boston", map[string]string{"region": "us"})
	for _, region := range []string{"eu", "us"} {
		_, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: region, MatchLabels: map[string]string{"region": region}})
		ok(t, err)
	}
	d.deploy(t, "default", "app", "eu")
	d.render(t, "default", "app", "1")
	_, err := d.SuspendEnvironment(d.ctx, root, "default", "eu", "audit")
	ok(t, err)
	_, err = d.UpdateDeployment(d.ctx, root, "default", "app", control.UpdateDeployment{Environment: ptr("us")}, control.Match{})
	wantConflict(t, err, "audit")
	_, err = d.ResumeEnvironment(d.ctx, root, "default", "eu")
	ok(t, err)
	_, err = d.UpdateDeployment(d.ctx, root, "default", "app", control.UpdateDeployment{Environment: ptr("nowhere")}, control.Match{})
	wantInvalid(t, err, "environment")
	d.edit(t, "default", "app", control.UpdateDeployment{Environment: ptr("us")})
	got := map[string]string{}
	for agent, target := range d.targets(t, "default", "app") {
		got[agent] = place(target)
	}
	if diff := cmp.Diff(map[string]string{"paris": "detached", "boston": "attached"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// covers: T2 (deletion), T5
func TestDeletedAndMadeAgainUnderTheSameNameThreeTimes(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris, rome := d.enroll(t, "default", "paris", nil), d.enroll(t, "default", "rome", nil)
	var operations []fleet.OperationID
	for i := range 3 {
		d.deploy(t, "default", "app", "default")
		d.render(t, "default", "app", fmt.Sprint(i))
		o, err := d.DeleteDeployment(d.ctx, root, "default", "app", control.Match{})
		ok(t, err)
		if o.State != fleet.OperationInProgress || o.Kind != "deployment" || o.Name != "app" || o.By != "root" {
			t.Fatalf("got %+v", o)
		}
		operations = append(operations, o.ID)
	}
	d.deploy(t, "default", "app", "default")
	d.render(t, "default", "app", "last")
	for _, agent := range []fleet.Agent{paris, rome} {
		for _, target := range d.onAgent(t, agent) {
			if target.Desired.Tombstone {
				d.sayOf(t, agent, target, fleet.SyncDeleted, "")
			}
		}
		for _, id := range operations {
			o := d.operation(t, id)
			if done := agent.Name == "rome"; o.State.Done() != done {
				t.Errorf("after %s the deletion is %s", agent.Name, o.State)
			}
		}
	}
	list, err := d.Deployments(d.ctx, root, "default", control.ListDeployments{})
	ok(t, err)
	if len(list) != 1 || !list[0].DeletedAt.IsZero() || list[0].Counts.Targets != 2 || list[0].Targets != nil {
		t.Errorf("left: %+v", list)
	}
	for agent, target := range d.targets(t, "default", "app") {
		if place(target) != "attached" {
			t.Errorf("%s: the one that lives is %s", agent, place(target))
		}
	}
}

// covers: A17 (nothing changes in a cluster while it is frozen)
func TestNothingIsDeletedWhileItIsFrozen(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		suspend func(*fixture) error
		refused bool
	}{
		"Fleet":  {"a freeze holds everything", func(d *fixture) error { _, err := d.Freeze(d.ctx, root, "audit"); return err }, true},
		"Tenant": {"so does that of the tenant", func(d *fixture) error { _, err := d.SuspendTenant(d.ctx, root, "default", "audit"); return err }, true},
		"Environment": {"and of the environment", func(d *fixture) error {
			_, err := d.SuspendEnvironment(d.ctx, root, "default", "default", "audit")
			return err
		}, true},
		"Deployment": {"its own does not: deleting it is a decision about just that", func(d *fixture) error {
			_, err := d.SuspendDeployment(d.ctx, root, "default", "app", "audit")
			return err
		}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.enroll(t, "default", "paris", nil)
			d.deploy(t, "default", "app", "default")
			d.render(t, "default", "app", "1")
			ok(t, tc.suspend(d))
			last := d.lastChange(t)
			_, err := d.DeleteDeployment(d.ctx, root, "default", "app", control.Match{})
			if !tc.refused {
				ok(t, err)
				return
			}
			wantConflict(t, err, "audit")
			if d.lastChange(t) != last || place(d.targets(t, "default", "app")["paris"]) != "attached" {
				t.Errorf("%s: something was written", tc.reason)
			}
		})
	}
}

// A detached target is released: deleting the deployment deletes nothing there.
func TestDeletionSparesWhatWasDetached(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", map[string]string{"in": "yes"})
	d.enroll(t, "default", "rome", map[string]string{"in": "yes"})
	_, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "in", MatchLabels: map[string]string{"in": "yes"}})
	ok(t, err)
	d.deploy(t, "default", "app", "in")
	d.render(t, "default", "app", "1")
	d.say(t, paris, "app", fleet.SyncSynced, "")
	_, err = d.UpdateAgent(d.ctx, root, "default", "paris", control.UpdateAgent{Labels: &map[string]string{}}, control.Match{})
	ok(t, err)
	ok(t, d.DeleteAgent(d.ctx, root, "default", "rome", control.Match{}))
	o, err := d.DeleteDeployment(d.ctx, root, "default", "app", control.Match{})
	ok(t, err)
	left := d.onAgent(t, paris)
	if len(left) != 1 || place(left[0]) != "detached" || d.operation(t, o.ID).State != fleet.OperationInProgress {
		t.Fatalf("left: %+v", left)
	}
	d.sayOf(t, paris, left[0], fleet.SyncDetached, "")
	if left := d.onAgent(t, paris); len(left) != 0 || d.operation(t, o.ID).State != fleet.OperationCompleted {
		t.Fatalf("after it was released: %+v", left)
	}
}

func TestADetachedTargetIsDismissedOnceItIsNobodys(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", map[string]string{"in": "yes"})
	_, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "in", MatchLabels: map[string]string{"in": "yes"}})
	ok(t, err)
	d.deploy(t, "default", "app", "in")
	d.render(t, "default", "app", "1")
	id := d.onAgent(t, paris)[0].ID
	wantConflict(t, d.DismissTarget(d.ctx, root, "default", "app", id), "paris")
	_, err = d.UpdateAgent(d.ctx, root, "default", "paris", control.UpdateAgent{Labels: &map[string]string{}}, control.Match{})
	ok(t, err)
	wantConflict(t, d.DismissTarget(d.ctx, root, "default", "app", id), "paris")
	d.say(t, paris, "app", fleet.SyncDetached, "")
	ok(t, d.DismissTarget(d.ctx, root, "default", "app", id))
	if err := d.DismissTarget(d.ctx, root, "default", "app", id); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the second time: %v", err)
	}
}

// covers: T2 (a failed operation is visible on what it was for)
func TestOperationsAreShownOnTheirDeployment(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", nil)
	d.deploy(t, "default", "app", "default")
	d.render(t, "default", "app", "1")
	run, err := d.Rollback(d.ctx, root, "default", "app", control.Rollback{Revision: 1})
	ok(t, err)
	if o := d.operation(t, run.OperationID); o.State != fleet.OperationInProgress && o.State != fleet.OperationCompleted {
		t.Fatalf("got %+v", o)
	}
	policy := d.view(t, "app").Policy
	policy.Force = true
	_, err = d.UpdateDeployment(d.ctx, root, "default", "app", control.UpdateDeployment{Policy: &policy}, control.Match{})
	ok(t, err)
	d.clock.pass(time.Second)
	run, err = d.Rollback(d.ctx, root, "default", "app", control.Rollback{Revision: 1})
	ok(t, err)
	d.say(t, paris, "app", fleet.SyncFailed, "no such quota")
	v := d.view(t, "app")
	if len(v.Operations) == 0 || v.Operations[0].State != fleet.OperationFailed || v.Operations[0].ID != run.OperationID {
		t.Fatalf("got %+v", v.Operations)
	}
	d.say(t, paris, "app", fleet.SyncSynced, "")
	d.clock.pass(time.Second)
	_, err = d.Rollback(d.ctx, root, "default", "app", control.Rollback{Revision: 1})
	ok(t, err)
	if v := d.view(t, "app"); len(v.Operations) != 0 {
		t.Errorf("an old failure is still shown: %+v", v.Operations)
	}
}
