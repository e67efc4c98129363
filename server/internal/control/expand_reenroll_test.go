package control_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// connect is the Hello of an agent in a cluster.
func (d *fixture) connect(t failer, a fleet.Agent, cluster string) {
	t.Helper()
	ok(t, d.AgentConnected(d.ctx, fleet.Connection{
		SessionID: fleet.NewSessionID(), AgentID: a.ID, TenantID: a.TenantID, Replica: "pod-0", ClusterUID: cluster,
		ConnectedAt: d.clock.Now(), LastSeenAt: d.clock.Now(),
	}))
}

// covers: C8, T5
func TestAgentEnrolledAgainGoesOnWithItsTargets(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	labels := map[string]string{"tier": "prod"}
	_, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "prod", MatchLabels: labels})
	ok(t, err)
	d.tenant(t, "other")
	paris := d.enroll(t, "default", "paris", labels)
	d.enroll(t, "default", "rome", labels)
	d.deploy(t, "default", "web", "prod")
	digest := d.render(t, "default", "web", "1")
	d.connect(t, paris, "cluster-1")
	was := d.targets(t, "default", "web")["paris"]
	d.says(t, paris, was.ID, fleet.Observed{Version: was.Desired.Version, Digest: digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: d.clock.Now()})

	for round := range 3 {
		ok(t, d.DeleteAgent(d.ctx, root, "default", "paris", control.Match{}))
		d.wantPlaces(t, "default", "web", map[string]string{"paris": "detached", "rome": "attached"})
		let := d.targets(t, "default", "web")["paris"]
		d.clock.pass(time.Hour)
		d.enroll(t, "other", "paris", labels) // another tenant's agent of that name has nothing to do with it
		if got := d.targets(t, "default", "web")["paris"]; got.AgentID != "" {
			t.Fatalf("another tenant's agent has taken it up: %+v", got)
		}
		paris = d.enroll(t, "default", "paris", labels)
		d.wantPlaces(t, "default", "web", map[string]string{"paris": "attached", "rome": "attached"})
		got := d.targets(t, "default", "web")["paris"]
		if got.ID != was.ID || got.AgentID != paris.ID || got.DetachedWhy != "" || got.Desired.Digest != digest {
			t.Errorf("round %d: the target is %+v, want the one that there was", round, got)
		}
		if !got.Desired.HoldPrune || got.Desired.Version.Compare(let.Desired.Version) <= 0 {
			t.Errorf("round %d: it is given %+v, want something newer that prunes nothing", round, got.Desired)
		}
		if targets, err := d.TargetsOf(d.ctx, paris, nil); err != nil || len(targets) != 1 || targets[0].Released() {
			t.Errorf("round %d: the agent is told of %+v, %v", round, targets, err)
		}
		// It has not connected yet: the last known state is old, not healthy.
		v, err := d.Deployment(d.ctx, root, "default", "web")
		ok(t, err)
		if view := v.Targets[0].View; v.Targets[0].AgentName != "paris" || view.Health != fleet.HealthStale || view.Sync != fleet.SyncPending {
			t.Errorf("round %d: before it has connected it reads %+v", round, view)
		}
		ok(t, d.DeleteAgent(d.ctx, root, "other", "paris", control.Match{}))
		d.connect(t, paris, "cluster-1")
		if now := d.targets(t, "default", "web")["paris"]; now.ID != was.ID || now.LeftIn != "" || now.Desired.Version != got.Desired.Version {
			t.Errorf("round %d: in the same cluster it has %+v", round, now)
		}
		d.says(t, paris, got.ID, fleet.Observed{Version: got.Desired.Version, Digest: digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: d.clock.Now()})
	}
	d.render(t, "default", "web", "2")
	if got := d.targets(t, "default", "web")["paris"].Desired; got.HoldPrune {
		t.Errorf("it has taken that up, and still prunes nothing: %+v", got)
	}
}

// An agent with the same name that the environment does not select does not change the targets, until it is
// selected.
func TestAgentEnrolledAgainElsewhereLeavesWhatItHadListed(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	labels := map[string]string{"tier": "prod"}
	_, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "prod", MatchLabels: labels})
	ok(t, err)
	d.enroll(t, "default", "paris", labels)
	d.deploy(t, "default", "web", "prod")
	d.render(t, "default", "web", "1")
	was := d.targets(t, "default", "web")["paris"]
	ok(t, d.DeleteAgent(d.ctx, root, "default", "paris", control.Match{}))
	again := d.enroll(t, "default", "paris", nil)
	d.wantPlaces(t, "default", "web", map[string]string{"paris": "detached"})
	_, err = d.UpdateAgent(d.ctx, root, "default", "paris", control.UpdateAgent{Labels: &labels}, control.Match{})
	ok(t, err)
	d.wantPlaces(t, "default", "web", map[string]string{"paris": "attached"})
	if got := d.targets(t, "default", "web")["paris"]; got.ID != was.ID || got.AgentID != again.ID {
		t.Errorf("selected it has %+v", got)
	}
	// Dismissed targets are gone: the next one is another target.
	ok(t, d.DeleteAgent(d.ctx, root, "default", "paris", control.Match{}))
	ok(t, d.DismissTarget(d.ctx, root, "default", "web", was.ID))
	d.enroll(t, "default", "paris", labels)
	if got := d.targets(t, "default", "web")["paris"]; got.ID == was.ID || got.ID == "" || got.Desired.HoldPrune {
		t.Errorf("after it was dismissed there is %+v", got)
	}
}

// A name that is reused for another cluster must not remove the objects of the first one from the listings:
// reports of the new agent would replace them.
//
// covers: C8
func TestAgentEnrolledAgainInAnotherClusterGetsTargetsOfItsOwn(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		was, is string
		poll    bool
		later   bool // it is selected only after it has connected
		same    bool
	}{
		"the same cluster":                              {was: "one", is: "one", same: true},
		"another cluster":                               {was: "one", is: "two"},
		"the agent before could not tell":               {was: "", is: "two"},
		"the agent cannot tell":                         {was: "one", is: ""},
		"neither can tell":                              {was: "", is: ""},
		"one that polls cannot tell":                    {was: "one", poll: true},
		"the same cluster, selected once it is there":   {was: "one", is: "one", later: true, same: true},
		"another cluster, selected once it is there":    {was: "one", is: "two", later: true},
		"it cannot tell, and is selected once it polls": {was: "one", poll: true, later: true},
	}
	for reason, c := range cases {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			labels := map[string]string{"tier": "prod"}
			_, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "prod", MatchLabels: labels})
			ok(t, err)
			paris := d.enroll(t, "default", "paris", labels)
			d.deploy(t, "default", "web", "prod")
			digest := d.render(t, "default", "web", "1")
			d.connect(t, paris, c.was)
			was := d.onAgent(t, paris)[0]
			d.says(t, paris, was.ID, fleet.Observed{Version: was.Desired.Version, Digest: digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: d.clock.Now()})
			ok(t, d.DeleteAgent(d.ctx, root, "default", "paris", control.Match{}))
			d.clock.pass(time.Hour)
			first := labels
			if c.later {
				first = nil
			}
			paris = d.enroll(t, "default", "paris", first)
			if c.poll {
				_, _, err = d.Applications(d.ctx, paris)
				ok(t, err)
			} else {
				d.connect(t, paris, c.is)
			}
			if c.later {
				_, err = d.UpdateAgent(d.ctx, root, "default", "paris", control.UpdateAgent{Labels: &labels}, control.Match{})
				ok(t, err)
			}
			mine := d.onAgent(t, paris)
			if len(mine) != 1 || mine[0].Desired.Digest != digest || mine[0].LeftIn != "" || (mine[0].ID == was.ID) != c.same {
				t.Fatalf("the agent has %+v, the one before had %s", mine, was.ID)
			}
			if c.same {
				return
			}
			v, err := d.Deployment(d.ctx, root, "default", "web")
			ok(t, err)
			left := slices.IndexFunc(v.Targets, func(v control.TargetView) bool { return v.ID == was.ID })
			if len(v.Targets) != 2 || left < 0 || v.Targets[left].View.Sync != fleet.SyncDetached || v.Targets[left].AgentID != "" {
				t.Errorf("listed are %+v", v.Targets)
			}
			// The agent returns to its cluster: its targets continue.
			ok(t, d.DeleteAgent(d.ctx, root, "default", "paris", control.Match{}))
			d.clock.pass(time.Hour)
			paris = d.enroll(t, "default", "paris", labels)
			d.connect(t, paris, "one")
			if mine := d.onAgent(t, paris); len(mine) != 1 || (mine[0].ID == was.ID) != (c.was == "one") {
				t.Errorf("back again it has %+v", mine)
			}
		})
	}
}

// A decision while an agent is trusted because of its name must not be executed elsewhere.
func TestWhatIsDecidedOnTrustIsTakenBack(t *testing.T) {
	t.Parallel()
	for reason, decide := range map[string]func(t *testing.T, d *fixture){
		"it leaves the environment, which deletes": func(t *testing.T, d *fixture) {
			_, err := d.UpdateAgent(d.ctx, root, "default", "paris", control.UpdateAgent{Labels: &map[string]string{}}, control.Match{})
			ok(t, err)
		},
		"it is deleted again": func(t *testing.T, d *fixture) {
			ok(t, d.DeleteAgent(d.ctx, root, "default", "paris", control.Match{}))
			d.enroll(t, "default", "paris", map[string]string{"tier": "prod"})
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			labels := map[string]string{"tier": "prod"}
			_, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "prod", MatchLabels: labels})
			ok(t, err)
			paris := d.enroll(t, "default", "paris", labels)
			d.deploy(t, "default", "web", "prod")
			_, err = d.UpdateDeployment(d.ctx, root, "default", "web", control.UpdateDeployment{Policy: &fleet.Policy{Prune: true, PruneOnDetach: true}}, control.Match{})
			ok(t, err)
			digest := d.render(t, "default", "web", "1")
			d.connect(t, paris, "one")
			was := d.onAgent(t, paris)[0]
			d.says(t, paris, was.ID, fleet.Observed{Version: was.Desired.Version, Digest: digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: d.clock.Now()})
			ok(t, d.DeleteAgent(d.ctx, root, "default", "paris", control.Match{}))
			d.enroll(t, "default", "paris", labels)
			decide(t, d)
			view, err := d.Agent(d.ctx, root, "default", "paris")
			ok(t, err)
			d.connect(t, view.Agent, "two")
			for _, x := range d.onAgent(t, view.Agent) {
				if x.ID == was.ID {
					t.Errorf("it gets a target of another cluster: %+v", x)
				}
			}
			v, err := d.Deployment(d.ctx, root, "default", "web")
			ok(t, err)
			if !slices.ContainsFunc(v.Targets, func(v control.TargetView) bool {
				return v.ID == was.ID && v.View.Sync == fleet.SyncDetached && !v.Desired.Tombstone && v.LeftIn == "one"
			}) {
				t.Errorf("listed are %+v", v.Targets)
			}
		})
	}
}
