package control_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const heldClaim = "PersistentVolumeClaim shop/data"

// ownedWeb creates a deployment "web" for a Kubernetes resource, on the agent paris, which is connected and has applied it.
func ownedWeb(t *testing.T, d *fixture, suspended bool) (auth.Principal, fleet.Agent) {
	t.Helper()
	paris, owner := d.enroll(t, "default", "paris", nil), d.forResource(t, "GitOpsDeployment", "web")
	request := control.CreateDeployment{Name: "web", Source: fleet.Source{RepoURL: "https://git.example.com/apps.git", Path: "web"}}
	ok(t, d.ApplyDeployment(d.ctx, owner, "default", request))
	d.render(t, "default", "web", "1")
	d.connect(t, paris, "cluster-1")
	d.say(t, paris, "web", fleet.SyncSynced, "")
	if suspended {
		request.Suspend = true
		ok(t, d.ApplyDeployment(d.ctx, owner, "default", request))
	}
	return owner, paris
}

// holdsAtEnd has an agent report that it has carried out its only target, a tombstone, except for a claim.
func (d *fixture) holdsAtEnd(t *testing.T, paris fleet.Agent) fleet.Target {
	t.Helper()
	target := d.onAgent(t, paris)[0]
	ok(t, d.Report(d.ctx, []rollout.AgentReports{{Agent: paris, Reports: []store.Report{{Target: target.ID, Full: true, Observed: fleet.Observed{
		Version: target.Desired.Version, Sync: fleet.SyncOutOfSync, Reason: fleet.ReasonPruneHeld, Health: fleet.HealthCurrent, AsOf: d.clock.Now(),
	}, Objects: []fleet.ObjectStatus{{
		ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"},
		Sync:      fleet.SyncHeld, Health: fleet.HealthCurrent, Reason: fleet.ReasonProtectedKind, Message: "held",
	}}}}}}))
	return target
}

// covers: K2
func TestADeletedResourceHoldsProtectedKinds(t *testing.T) {
	t.Parallel()
	for name, suspended := range map[string]bool{"in force": false, "suspended": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			owner, paris := ownedWeb(t, d, suspended)
			ok(t, result(d.DeleteDeploymentHoldProtected(d.ctx, owner, "default", "web", control.Match{})))
			target := d.holdsAtEnd(t, paris)
			if want := target.Desired; !want.Tombstone || !want.Consent || !want.HoldProtected {
				t.Errorf("the agent gets %+v", want)
			}
			list, err := d.HeldPrunes(d.ctx, root, "default", "web", "", store.HeldObject{}, 10)
			ok(t, err)
			if len(list) != 1 || list[0].String() != heldClaim || !list[0].Current || list[0].Confirmed {
				t.Errorf("held prunes are %+v", list)
			}
			owned, err := d.OwnedDeployments(d.ctx, owner, "default", 1)
			ok(t, err)
			if len(owned) != 1 || owned[0].Counts.HeldPrunes != 1 {
				t.Errorf("the resource sees %+v", owned)
			}
			diagnosis, err := d.Diagnose(d.ctx, root, "default")
			ok(t, err)
			if !slices.ContainsFunc(diagnosis.Findings, func(f control.Finding) bool { return f.Reason == fleet.ReasonPruneHeld && f.Subject == "web" }) {
				t.Errorf("the diagnosis is %+v", diagnosis.Findings)
			}
			// The deletion repeats with every pass over the resource and changes nothing.
			if _, err := d.DeleteDeploymentHoldProtected(d.ctx, owner, "default", "web", control.Match{}); err == nil {
				t.Error("a deleted deployment was deleted again")
			}
			done, err := d.ConfirmPrune(d.ctx, root, "default", "web", control.ConfirmPrune{Objects: []string{heldClaim}})
			ok(t, err)
			got := d.onAgent(t, paris)[0].Desired
			if done.Targets != 1 || !got.Tombstone || !got.HoldProtected || !slices.Equal(got.Confirmed, []string{heldClaim}) || got.Compare(target.Desired.Version) <= 0 {
				t.Errorf("after the confirmation, the agent gets %+v", got)
			}
			d.says(t, paris, target.ID, fleet.Observed{Version: got.Version, Sync: fleet.SyncDeleted, AsOf: d.clock.Now()})
			if left := d.onAgent(t, paris); len(left) != 0 {
				t.Errorf("%+v is left", left)
			}
		})
	}
}

// covers: K2
func TestNothingWaitsForeverForAConfirmation(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*fixture, auth.Principal) error{
		"the finalizer is removed": func(d *fixture, owner auth.Principal) error { return d.ReleaseProtected(d.ctx, owner, "default") },
		"the resource is missing": func(d *fixture, owner auth.Principal) error {
			tenant, err := d.Tenant(d.ctx, root, "default")
			if err != nil {
				return err
			}
			return d.OwnerMissing(d.ctx, root, tenant.ID, owner.Owner)
		},
		"the agent is uninstalled": func(d *fixture, _ auth.Principal) error {
			return result(d.DeleteAgentObjects(d.ctx, root, "default", "paris", 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			owner, paris := ownedWeb(t, d, false)
			ok(t, result(d.DeleteDeploymentHoldProtected(d.ctx, owner, "default", "web", control.Match{})))
			d.holdsAtEnd(t, paris)
			ok(t, result(d.ConfirmPrune(d.ctx, root, "default", "web", control.ConfirmPrune{Objects: []string{heldClaim}})))
			before := d.holdsAtEnd(t, paris).Desired
			ok(t, end(d, owner))
			got := d.onAgent(t, paris)[0].Desired
			if !got.Tombstone || got.HoldProtected || len(got.Confirmed) > 0 || got.Compare(before.Version) <= 0 {
				t.Errorf("the agent gets %+v, want a newer tombstone that releases and deletes nothing more", got)
			}
			ok(t, d.ReleaseProtected(d.ctx, owner, "default"))
			if again := d.onAgent(t, paris)[0].Desired; again.Version != got.Version {
				t.Errorf("without anything held, the agent gets %+v", again)
			}
		})
	}
	t.Run("the agent is deleted", func(t *testing.T) {
		t.Parallel()
		d := newFixture(t)
		owner, paris := ownedWeb(t, d, false)
		ok(t, result(d.DeleteDeploymentHoldProtected(d.ctx, owner, "default", "web", control.Match{})))
		d.holdsAtEnd(t, paris)
		ok(t, d.DeleteAgent(d.ctx, root, "default", "paris", control.Match{}))
		if owned, err := d.OwnedDeployments(d.ctx, owner, "default", 1); err != nil || len(owned) != 0 {
			t.Errorf("the resource waits for %+v, %v", owned, err)
		}
		d.wantEvent(t, "default", "DeletionAbandoned")
	})
}

// covers: K2
func TestOnlyTheResourceOfADeletedDeploymentEndsItsHold(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	owner, paris := ownedWeb(t, d, false)
	ok(t, d.ReleaseProtected(d.ctx, owner, "default"))
	if got := d.onAgent(t, paris)[0].Desired; got.Tombstone || got.Generation != 1 {
		t.Errorf("a deployment that is in force gets %+v", got)
	}
	ok(t, result(d.DeleteDeploymentHoldProtected(d.ctx, owner, "default", "web", control.Match{})))
	d.holdsAtEnd(t, paris)
	ok(t, d.ReleaseProtected(d.ctx, d.forResource(t, "GitOpsDeployment", "other"), "default"))
	replaced := owner
	replaced.Owner.UID = "uid-newer"
	ok(t, d.ReleaseProtected(d.ctx, replaced, "default"))
	if got := d.onAgent(t, paris)[0].Desired; !got.HoldProtected {
		t.Errorf("another resource ended the hold: %+v", got)
	}
	if err := d.ReleaseProtected(d.ctx, auth.Principal{Name: "guest", Component: "rest"}, "default"); err == nil {
		t.Error("a caller without a role may end it")
	}
}

// What users delete through REST does not wait for a confirmation: protected kinds are released.
func TestADeletionByAUserReleasesProtectedKinds(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", nil)
	d.deploy(t, "default", "web", "")
	d.render(t, "default", "web", "1")
	d.say(t, paris, "web", fleet.SyncSynced, "")
	ok(t, result(d.DeleteDeployment(d.ctx, root, "default", "web", control.Match{})))
	if got := d.onAgent(t, paris)[0].Desired; !got.Tombstone || got.HoldProtected {
		t.Errorf("the agent gets %+v", got)
	}
	// An agent that releases objects reports them as held for a moment. Nothing waits for a confirmation.
	d.holdsAtEnd(t, paris)
	diagnosis, err := d.Diagnose(d.ctx, root, "default")
	ok(t, err)
	for _, f := range diagnosis.Findings {
		if strings.Contains(f.Message, "confirmation") {
			t.Errorf("the diagnosis asks for a confirmation: %+v", f)
		}
	}
}

// covers: K2
func TestAHoldCanBeConfirmedAfterARestore(t *testing.T) {
	t.Parallel()
	path := blank(t)
	d, closeFixture := openFixture(t, path)
	owner, paris := ownedWeb(t, d, false)
	ok(t, result(d.DeleteDeploymentHoldProtected(d.ctx, owner, "default", "web", control.Match{})))
	before := d.holdsAtEnd(t, paris).Desired
	ok(t, d.store.Update(d.ctx, func(tx store.Tx) error { return tx.Settings().SetEpoch(d.ctx, before.Epoch+1) })) // as a restore does
	closeFixture()
	d, closeFixture = openFixture(t, path)
	t.Cleanup(closeFixture)
	ok(t, result(d.ConfirmPrune(d.ctx, root, "default", "web", control.ConfirmPrune{Objects: []string{heldClaim}})))
	if got := d.onAgent(t, paris)[0].Desired; !slices.Equal(got.Confirmed, []string{heldClaim}) || got.Compare(before.Version) <= 0 {
		t.Errorf("after the confirmation, the agent gets %+v", got)
	}
}

// A deployment with the name of one that is being deleted does not hide what that one holds.
// covers: K2
func TestHeldObjectsOfBothDeploymentsWithANameAreConfirmed(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	owner, paris := ownedWeb(t, d, false)
	ok(t, result(d.DeleteDeploymentHoldProtected(d.ctx, owner, "default", "web", control.Match{})))
	leaving := d.holdsAtEnd(t, paris)
	d.deploy(t, "default", "web", "default")
	d.render(t, "default", "web", "2")
	d.holdBack(t, "default", paris, "a", "b")

	var got []string
	for after, more := (store.HeldObject{}), true; more; {
		page, err := d.HeldPrunes(d.ctx, root, "default", "web", "", after, 1)
		ok(t, err)
		if more = len(page) > 0; more {
			got, after = append(got, page[0].String()), page[0].HeldObject
		}
	}
	if want := []string{heldA, heldB, heldClaim}; !slices.Equal(got, want) {
		t.Fatalf("held are %q, want %q", got, want)
	}
	if _, err := d.ConfirmPrune(d.ctx, root, "default", "web", control.ConfirmPrune{All: true, Count: 2}); err == nil {
		t.Error("the number of the held objects of one of them was accepted")
	}
	done, err := d.ConfirmPrune(d.ctx, root, "default", "web", control.ConfirmPrune{Objects: []string{heldClaim}})
	ok(t, err)
	if done.Targets != 1 || len(d.confirmed(t, "paris")) > 0 {
		t.Errorf("%+v were confirmed, and %q for the live deployment", done, d.confirmed(t, "paris"))
	}
	if log, err := d.Audit(d.ctx, root, "default", store.AuditFilter{Limit: 1}); err != nil || log[0].ID != string(leaving.DeploymentID) {
		t.Errorf("the audit log says %+v, %v", log, err)
	}
	for _, target := range d.onAgent(t, paris) {
		if target.ID == leaving.ID && !slices.Equal(target.Desired.Confirmed, []string{heldClaim}) {
			t.Errorf("the deleted deployment has %q confirmed", target.Desired.Confirmed)
		}
	}
}
