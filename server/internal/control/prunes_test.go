package control_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	heldA = "ConfigMap shop/a"
	heldB = "ConfigMap shop/b"
)

// holdBack reports for an agent that it has synced the desired state of its target of "web", and holds config
// maps with these names in namespace shop.
func (d *fixture) holdBack(t failer, tenant string, agent fleet.Agent, names ...string) {
	t.Helper()
	target := d.targets(t, tenant, "web")[agent.Name]
	r := store.Report{Target: target.ID, Full: true, Observed: fleet.Observed{
		Version: target.Desired.Version, Digest: target.Desired.Digest, Sync: fleet.SyncOutOfSync, Health: fleet.HealthCurrent, AsOf: d.clock.Now(),
	}}
	for _, name := range names {
		r.Objects = append(r.Objects, fleet.ObjectStatus{
			ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: name},
			Sync:      fleet.SyncHeld, Health: fleet.HealthCurrent, Message: "12 of 20 objects would be deleted",
		})
	}
	ok(t, d.Report(d.ctx, []rollout.AgentReports{{Agent: agent, Reports: []store.Report{r}}}))
}

// holding is a deployment "web" of the default tenant on paris, which holds a and b, and on rome, which holds
// a.
func holding(t failer, d *fixture) (paris, rome fleet.Agent) {
	t.Helper()
	paris, rome = d.enroll(t, "default", "paris", nil), d.enroll(t, "default", "rome", nil)
	d.deploy(t, "default", "web", "default")
	d.render(t, "default", "web", "1")
	d.holdBack(t, "default", paris, "a", "b")
	d.holdBack(t, "default", rome, "a")
	return paris, rome
}

func (d *fixture) confirmed(t failer, agent string) []string {
	t.Helper()
	return d.targets(t, "default", "web")[agent].Desired.Confirmed
}

func TestHeldPrunesAreListedAndConfirmed(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris, _ := holding(t, d)
	before := d.targets(t, "default", "web")["paris"].Desired
	list, err := d.HeldPrunes(d.ctx, root, "default", "web", "", store.HeldObject{}, 2)
	ok(t, err)
	if len(list) != 2 || list[0].Agent != "paris" || list[0].String() != heldA || !list[0].Current || list[0].Confirmed || !strings.Contains(list[0].Message, "12 of 20") {
		t.Fatalf("the first page is %+v", list)
	}
	list, err = d.HeldPrunes(d.ctx, root, "default", "web", "", list[1].HeldObject, 2)
	ok(t, err)
	if len(list) != 1 || list[0].Agent != "rome" {
		t.Fatalf("the second page is %+v", list)
	}

	views, err := d.Deployments(d.ctx, root, "default", control.ListDeployments{Page: store.Page{Limit: 10}})
	ok(t, err)
	if views[0].Sync != fleet.SyncOutOfSync || views[0].Counts.HeldPrunes != 3 || views[0].Counts.Ready != 0 {
		t.Errorf("it is listed as %s with %+v, want it OutOfSync with 3 held deletions", views[0].Sync, views[0].Counts)
	}

	done, err := d.ConfirmPrune(d.ctx, root, "default", "web", control.ConfirmPrune{Objects: []string{heldA}})
	ok(t, err)
	if diff := cmp.Diff(control.ConfirmedPrune{Objects: []string{heldA}, Deletions: 2, Targets: 2}, done); diff != "" {
		t.Error(diff)
	}
	want := before
	want.Generation, want.Confirmed = before.Generation+1, []string{heldA}
	if diff := cmp.Diff(want, d.targets(t, "default", "web")["paris"].Desired); diff != "" {
		t.Errorf("paris got (-want +got):\n%s", diff)
	}
	log, err := d.Audit(d.ctx, root, "default", store.AuditFilter{Limit: 1})
	ok(t, err)
	if log[0].Action != "deployment.confirm-prune" || !strings.Contains(log[0].Detail, heldA) {
		t.Errorf("the audit log says %+v", log[0])
	}

	// The agent has deleted a; the rest of its held objects is confirmed by number.
	d.holdBack(t, "default", paris, "b")
	_, err = d.ConfirmPrune(d.ctx, root, "default", "web", control.ConfirmPrune{All: true, Count: 1, Agent: "paris"})
	ok(t, err)
	if diff := cmp.Diff([]string{heldB}, d.confirmed(t, "paris")); diff != "" {
		t.Errorf("what is done is confirmed for ever (-want +got):\n%s", diff)
	}
	d.holdBack(t, "default", paris, "b") // and does not delete it yet
	quiet := d.lastChange(t)
	done, err = d.ConfirmPrune(d.ctx, root, "default", "web", control.ConfirmPrune{Objects: []string{heldB}})
	ok(t, err)
	if done.Targets != 0 || d.lastChange(t) != quiet {
		t.Errorf("confirmed twice it changes something: %+v", done)
	}
}

// More can be confirmed one after the other than together, and running confirmations stay.
func TestWhatIsDeletedMakesReplicaForMore(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", nil)
	d.deploy(t, "default", "web", "default")
	d.render(t, "default", "web", "1")
	names := make([]string, wire.MaxConfirmed)
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
	}
	d.holdBack(t, "default", paris, names...)
	_, err := d.ConfirmPrune(d.ctx, root, "default", "web", control.ConfirmPrune{All: true, Count: len(names)})
	ok(t, err)
	d.holdBack(t, "default", paris, "a", "b")
	_, err = d.ConfirmPrune(d.ctx, root, "default", "web", control.ConfirmPrune{Objects: []string{heldA}})
	ok(t, err)
	if diff := cmp.Diff([]string{heldA}, d.confirmed(t, "paris")); diff != "" {
		t.Error(diff)
	}

	// The agent has started with a, which it no longer holds, and is not done.
	target := d.targets(t, "default", "web")["paris"]
	ok(t, d.Report(d.ctx, []rollout.AgentReports{{Agent: paris, Reports: []store.Report{{Target: target.ID, Full: true, Observed: fleet.Observed{
		Version: target.Desired.Version, Digest: target.Desired.Digest, Sync: fleet.SyncSyncing, Health: fleet.HealthCurrent, AsOf: d.clock.Now(),
	}, Objects: []fleet.ObjectStatus{{
		ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "b"}, Sync: fleet.SyncHeld, Health: fleet.HealthCurrent,
	}}}}}}))
	_, err = d.ConfirmPrune(d.ctx, root, "default", "web", control.ConfirmPrune{Objects: []string{heldB}})
	ok(t, err)
	if diff := cmp.Diff([]string{heldA, heldB}, d.confirmed(t, "paris")); diff != "" {
		t.Errorf("while it is not done (-want +got):\n%s", diff)
	}
}

func TestWhatCannotBeConfirmedChangesNothing(t *testing.T) {
	t.Parallel()
	byName := control.ConfirmPrune{Objects: []string{heldA}}
	suspend := func(_ *testing.T, d *fixture) error {
		return result(d.SuspendDeployment(d.ctx, root, "default", "web", "audit"))
	}
	cases := map[string]struct {
		prepare func(t *testing.T, d *fixture) error
		req     control.ConfirmPrune
		says    string // of a conflict
		field   string // of an invalid request
	}{
		"an object that is not held":        {nil, control.ConfirmPrune{Objects: []string{heldA, "Secret shop/x"}}, "Secret shop/x", ""},
		"one that only another agent holds": {nil, control.ConfirmPrune{Objects: []string{heldB}, Agent: "rome"}, heldB, ""},
		"all, with too small a number":      {nil, control.ConfirmPrune{All: true, Count: 2}, "3 deletions are held now, not 2", ""},
		"all, with too large a number":      {nil, control.ConfirmPrune{All: true, Count: 4}, "3 deletions are held now, not 4", ""},
		"all, without a number":             {nil, control.ConfirmPrune{All: true}, "", "count"},
		"all and some":                      {nil, control.ConfirmPrune{All: true, Count: 3, Objects: []string{heldA}}, "", "objects"},
		"nothing":                           {nil, control.ConfirmPrune{}, "", "objects"},
		"an agent without the deployment":   {nil, control.ConfirmPrune{Objects: []string{heldA}, Agent: "oslo"}, "", "agent"},
		"while the deployment is suspended": {suspend, byName, "suspended by root", ""},
		"while the fleet is frozen":         {func(_ *testing.T, d *fixture) error { return result(d.Freeze(d.ctx, root, "x")) }, byName, "fleet is suspended", ""},
		"before the agents answer to an edit": {func(t *testing.T, d *fixture) error {
			d.edit(t, "default", "web", control.UpdateDeployment{Namespace: ptr("shop")})
			return nil
		}, byName, "held deletion not found", ""},
		"before the agents answer to a commit": {func(t *testing.T, d *fixture) error {
			d.render(t, "default", "web", "2")
			return nil
		}, byName, "held deletion not found", ""},
		"after the targets have left": {func(_ *testing.T, d *fixture) error {
			return result(d.UpdateEnvironment(d.ctx, root, "default", "default", control.UpdateEnvironment{MatchLabels: &map[string]string{"no": "body"}}, control.Match{}))
		}, byName, "held deletion not found", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			holding(t, d)
			if c.prepare != nil {
				ok(t, c.prepare(t, d))
			}
			quiet := d.lastChange(t)
			_, err := d.ConfirmPrune(d.ctx, root, "default", "web", c.req)
			if c.field != "" {
				wantInvalid(t, err, c.field)
			} else {
				wantConflict(t, err, c.says)
			}
			if d.lastChange(t) != quiet {
				t.Error("something was written")
			}
		})
	}
}

// covers: T3
func TestOnlyDeployersOfTheTenantConfirm(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	holding(t, d)
	own, err := d.Tenant(d.ctx, root, "default")
	ok(t, err)
	other := d.tenant(t, "other")
	quiet := d.lastChange(t)
	req := control.ConfirmPrune{Objects: []string{heldA}}
	if _, err := d.ConfirmPrune(d.ctx, member(own, fleet.RoleViewer), "default", "web", req); !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("a viewer: %v", err)
	}
	if _, err := d.ConfirmPrune(d.ctx, member(other, fleet.RoleAdmin), "default", "web", req); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an admin of another tenant: %v", err)
	}
	if _, err := d.ConfirmPrune(d.ctx, member(other, fleet.RoleAdmin), "other", "web", req); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("by the name of another tenant: %v", err)
	}
	if _, err := d.HeldPrunes(d.ctx, member(other, fleet.RoleAdmin), "default", "web", "", store.HeldObject{}, 9); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the listing: %v", err)
	}
	if d.lastChange(t) != quiet {
		t.Error("something was written")
	}
	_, err = d.ConfirmPrune(d.ctx, member(own, fleet.RoleDeployer), "default", "web", req)
	ok(t, err)
}

func TestAConfirmationIsForOneBundle(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, d *fixture){
		"a commit": func(t *testing.T, d *fixture) { d.render(t, "default", "web", "2") },
		"a commit and back": func(t *testing.T, d *fixture) {
			d.render(t, "default", "web", "2")
			d.render(t, "default", "web", "1")
		},
		"a rollback": func(t *testing.T, d *fixture) {
			d.render(t, "default", "web", "2")
			ok(t, result(d.Rollback(d.ctx, root, "default", "web", control.Rollback{Revision: 1})))
		},
		"an edit": func(t *testing.T, d *fixture) {
			ok(t, result(d.UpdateDeployment(d.ctx, root, "default", "web", control.UpdateDeployment{Policy: &fleet.Policy{Prune: true, Force: true}}, control.Match{})))
		},
		"leaving the environment": func(t *testing.T, d *fixture) {
			ok(t, result(d.UpdateEnvironment(d.ctx, root, "default", "default", control.UpdateEnvironment{Agents: &[]string{"rome"}}, control.Match{})))
			ok(t, result(d.UpdateEnvironment(d.ctx, root, "default", "default", control.UpdateEnvironment{Agents: &[]string{}}, control.Match{})))
		},
		"the deletion of the deployment": func(t *testing.T, d *fixture) {
			ok(t, result(d.DeleteDeployment(d.ctx, root, "default", "web", control.Match{})))
			d.deploy(t, "default", "web", "default")
		},
	}
	for name, move := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			holding(t, d)
			_, err := d.ConfirmPrune(d.ctx, root, "default", "web", control.ConfirmPrune{Objects: []string{heldA, heldB}})
			ok(t, err)
			if len(d.confirmed(t, "paris")) != 2 {
				t.Fatal("nothing was confirmed")
			}
			move(t, d)
			if got := d.confirmed(t, "paris"); got != nil {
				t.Errorf("it outlived %s: %v", name, got)
			}
		})
	}
	t.Run("while a label changes it stays", func(t *testing.T) {
		t.Parallel()
		d := newFixture(t)
		holding(t, d)
		_, err := d.ConfirmPrune(d.ctx, root, "default", "web", control.ConfirmPrune{Objects: []string{heldA}})
		ok(t, err)
		_, err = d.UpdateDeployment(d.ctx, root, "default", "web", control.UpdateDeployment{Labels: &map[string]string{"a": "b"}}, control.Match{})
		ok(t, err)
		if len(d.confirmed(t, "paris")) != 1 {
			t.Error("it is gone though nothing was sent")
		}
	})
}

// In any order, a concurrent confirmation and commit leave no confirmed deletion with the bundle of the commit.
func TestAConfirmationRacesWithACommit(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris, rome := holding(t, d)
	for round := range 10 {
		value := "next " + time.Duration(round).String()
		d.rendered(t, "default", "web", configMap("a", value))
		was := d.targets(t, "default", "web")["paris"].Desired
		var both sync.WaitGroup
		var confirm, commit error
		both.Go(func() {
			_, confirm = d.ConfirmPrune(d.ctx, root, "default", "web", control.ConfirmPrune{Objects: []string{heldA}})
		})
		both.Go(func() { // any edit settles
			_, commit = d.UpdateDeployment(d.ctx, root, "default", "web", control.UpdateDeployment{Labels: &map[string]string{"round": value[5:]}}, control.Match{})
		})
		both.Wait()
		ok(t, commit)
		var refused *control.ConflictError
		if confirm != nil && !errors.As(confirm, &refused) {
			t.Fatal(confirm)
		}
		now := d.targets(t, "default", "web")["paris"].Desired
		if now.Digest == was.Digest || now.Confirmed != nil {
			t.Fatalf("round %d: confirmed (%v) of the old bundle, %v is deleted from the new one", round, confirm, now.Confirmed)
		}
		d.holdBack(t, "default", paris, "a", "b")
		d.holdBack(t, "default", rome, "a")
	}
}
