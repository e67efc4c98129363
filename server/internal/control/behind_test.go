package control_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Invariant 4: new limits of a grant are sent to agents, but not to one that is ahead of the server: it would
// get an older state, and prune.
func TestNewLimitsAreNotToldToAnAgentThatIsAhead(t *testing.T) {
	t.Parallel()
	d, g := hosted(t, fleet.Limits{})
	rome := d.enroll(t, "host", "rome", nil)
	d.deploy(t, "guest", "web", "host/default")
	d.render(t, "guest", "web", "1")
	before := d.targets(t, "guest", "web")
	ahead := fleet.Version{Epoch: before["rome"].Desired.Epoch, Generation: 41}
	ok(t, d.AgentAhead(d.ctx, rome, before["rome"].ID, ahead))
	_, err := d.UpdateGrant(d.ctx, root, "host", g.ID, control.UpdateGrant{Limits: fleet.Limits{Namespaces: []string{"default"}}}, control.Match{})
	ok(t, err)
	after := d.targets(t, "guest", "web")
	if got := after["paris"].Desired; got.Version.Compare(before["paris"].Desired.Version) <= 0 {
		t.Errorf("an agent that is not ahead did not get the limits: %+v", got)
	}
	if got := after["rome"]; got.Desired.Version != before["rome"].Desired.Version || got.Observed.Sync != fleet.SyncRewound {
		t.Errorf("an agent that is ahead got %+v", got.Desired)
	}
}

// Invariant 4: the same version with another bundle was issued by a lost database. Its agent has reported it as
// in sync.
func TestAReportOfAnotherBundleUnderTheSameVersionIsAnAgentAhead(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	target := r.deployed(t, paris)
	ok(t, r.Report(t.Context(), []rollout.AgentReports{{Agent: paris, Reports: []store.Report{{
		Target: target.ID, Full: true, Observed: fleet.Observed{
			Version: target.Desired.Version, Digest: "sha256:other", Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: time.Now(),
		},
	}}}}))
	_, err := r.UpdateDeployment(t.Context(), admin, "default", "app", control.UpdateDeployment{Namespace: ptr("shop")}, control.Match{})
	ok(t, err)
	d := r.await(t, "app", func(d control.DeploymentView) error {
		if d.Targets[0].Desired.Namespace != "shop" {
			return fmt.Errorf("not there yet: %+v", d.Targets[0].Desired)
		}
		return nil
	})
	if !d.Targets[0].Desired.HoldPrune {
		t.Errorf("what the server knows nothing of may be pruned: %+v", d.Targets[0].Desired)
	}
}

// The source for an agent that turned out to be ahead during a freeze is read again after it: during the freeze
// it got nothing.
func TestAnAgentAheadDuringAFreezeGoesOnAfterIt(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	target := r.deployed(t, paris)
	_, err := r.Freeze(t.Context(), admin, "audit")
	ok(t, err)
	ok(t, r.AgentAhead(t.Context(), paris, target.ID, fleet.Version{Epoch: target.Desired.Epoch, Generation: 41}))
	// Whatever is looked at after the rewind was looked at with it.
	commit := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")})
	d := r.await(t, "app", atCommit(commit))
	if d.Targets[0].Desired.Version != target.Desired.Version {
		t.Fatalf("in a freeze it was given %+v", d.Targets[0].Desired)
	}
	_, err = r.Unfreeze(t.Context(), admin)
	ok(t, err)
	d = r.await(t, "app", func(d control.DeploymentView) error { // the next poll is an hour away
		if d.Targets[0].Desired.Generation != 42 {
			return fmt.Errorf("after the freeze it has %+v", d.Targets[0].Desired)
		}
		return nil
	})
	if got := d.Targets[0].Desired; got.Commit != commit || !got.HoldPrune {
		t.Errorf("after the freeze it was given %+v", got)
	}
}

// A variant that was first needed in a freeze is rendered after it.
func TestAVariantThatIsNewInAFreezeIsRenderedAfterIt(t *testing.T) {
	t.Parallel()
	r, d := regional(t)
	was := byAgent(d)["mars"].Desired
	r.deploy(t, "probe", "probe") // when it is at a commit, so is the other one
	r.await(t, "probe", atCommit(r.push(t, map[string]string{"overlays/asia/cm.yaml": configMap("a", "asia"), "probe/cm.yaml": configMap("b", "1")})))
	_, err := r.SuspendEnvironment(t.Context(), admin, "default", "default", "audit")
	ok(t, err)
	_, err = r.UpdateAgent(t.Context(), admin, "default", "mars", control.UpdateAgent{Labels: &map[string]string{"region": "asia"}}, control.Match{})
	ok(t, err)
	_, err = r.ResumeEnvironment(t.Context(), admin, "default", "default")
	ok(t, err)
	r.await(t, "app", func(d control.DeploymentView) error { // the next poll is an hour away
		if got := byAgent(d)["mars"].Desired; got.Digest == "" || got.Digest == was.Digest {
			return fmt.Errorf("mars has %+v; %s", got, d.Message)
		}
		return nil
	})
}

// A deleted grant is no request of a user: its targets are detached, even if the deployment prunes on detach.
func TestATargetWithoutAGrantIsLetGoAndNotDeleted(t *testing.T) {
	t.Parallel()
	d, g := hosted(t, fleet.Limits{})
	_, err := d.CreateDeployment(d.ctx, root, "guest", control.CreateDeployment{
		Name: "web", Environment: "host/default", Policy: &fleet.Policy{Prune: true, PruneOnDetach: true}, Source: fleet.Source{RepoURL: "https://git.example.com/apps.git"},
	})
	ok(t, err)
	d.render(t, "guest", "web", "1")
	target := d.targets(t, "guest", "web")["paris"]
	target.GrantID = ""
	ok(t, d.store.Update(d.ctx, func(tx store.Tx) error {
		return errors.Join(tx.Targets().SetPlace(d.ctx, target), tx.Grants().Delete(d.ctx, g.TenantID, g.ID))
	}))
	_, err = d.UpdateDeployment(d.ctx, root, "guest", "web", control.UpdateDeployment{Labels: &map[string]string{"team": "x"}}, control.Match{})
	ok(t, err)
	d.wantPlaces(t, "guest", "web", map[string]string{"paris": "detached"})
}
