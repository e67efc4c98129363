package control_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// The objects of a re-enrolled agent are listed and confirmed while its prune is held, and the confirmation is
// sent without the hold: unconfirmed objects are marked in the cluster by then.
//
// covers: A6 (agent rejoin: held, listed, confirmable)
func TestWhatARecoveryHoldsIsConfirmedByName(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", nil)
	d.deploy(t, "default", "web", "default")
	d.render(t, "default", "web", "1")
	target := d.targets(t, "default", "web")["paris"]
	held := target.Desired
	held.HoldPrune = true
	ok(t, d.store.Update(d.ctx, func(tx store.Tx) error { return tx.Targets().SetDesired(d.ctx, target.TenantID, target.ID, held) }))

	confirm := control.ConfirmPrune{Objects: []string{heldA}}
	_, err := d.ConfirmPrune(d.ctx, root, "default", "web", confirm)
	wantConflict(t, err, "held deletion not found")
	d.holdBack(t, "default", paris, "a", "b")
	list, err := d.HeldPrunes(d.ctx, root, "default", "web", "", store.HeldObject{}, 10)
	ok(t, err)
	if len(list) != 2 || !list[0].Current {
		t.Fatalf("held are %+v, want both, and confirmable", list)
	}
	done, err := d.ConfirmPrune(d.ctx, root, "default", "web", confirm)
	ok(t, err)
	got := d.targets(t, "default", "web")["paris"].Desired
	if done.Deletions != 1 || got.HoldPrune || len(got.Confirmed) != 1 {
		t.Errorf("%+v was confirmed, and the agent gets %+v", done, got)
	}
}

// A dry run stores nothing, so it does not end a hold.
func TestADryRunDoesNotEndAHold(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", nil)
	d.deploy(t, "default", "web", "default")
	_, err := d.UpdateDeployment(d.ctx, root, "default", "web", control.UpdateDeployment{Policy: &fleet.Policy{Prune: true, DryRun: true}}, control.Match{})
	ok(t, err)
	d.render(t, "default", "web", "1")
	target := d.targets(t, "default", "web")["paris"]
	held := target.Desired
	held.HoldPrune = true
	ok(t, d.store.Update(d.ctx, func(tx store.Tx) error { return tx.Targets().SetDesired(d.ctx, target.TenantID, target.ID, held) }))
	d.holdBack(t, "default", paris, "a")
	d.render(t, "default", "web", "2")
	if got := d.targets(t, "default", "web")["paris"].Desired; !got.HoldPrune || got.Version.Compare(held.Version) <= 0 {
		t.Errorf("after a dry run the agent gets %+v", got)
	}
}
