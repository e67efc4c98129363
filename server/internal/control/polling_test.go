package control_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// another is a second server on the database of a desk.
func (d *fixture) another(t *testing.T, lease time.Duration) *control.Service {
	t.Helper()
	s, err := control.New(control.Config{
		Key: []byte(strings.Repeat("k", 32)), Version: "test", Shared: true, PollLease: lease, Now: d.clock.Now,
	}, d.store, noGit{})
	ok(t, err)
	_, err = s.Bootstrap(d.ctx, false)
	ok(t, err)
	return s
}

func (d *fixture) says(t *testing.T, agent fleet.Agent, id fleet.TargetID, said fleet.Observed) {
	t.Helper()
	ok(t, d.Report(d.ctx, []rollout.AgentReports{{Agent: agent, Reports: []store.Report{{Target: id, Observed: said}}}}))
}

// covers: T9, D7
func TestClusterThatPollsIsThereByItsPolls(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", nil)
	d.deploy(t, "default", "web", "")
	digest := d.render(t, "default", "web", "1")
	patient, hasty := d.another(t, time.Hour), d.another(t, time.Millisecond)
	view := func() (control.AgentView, control.TargetView) {
		t.Helper()
		a, err := d.Agent(d.ctx, root, "default", "paris")
		ok(t, err)
		v, err := d.Deployment(d.ctx, root, "default", "web")
		ok(t, err)
		return a, v.Targets[0]
	}
	rows, tag, err := patient.Applications(d.ctx, paris)
	ok(t, err)
	if len(rows) != 1 {
		t.Fatalf("the rows are %+v", rows)
	}
	d.says(t, paris, rows[0].ID, fleet.Observed{
		Version: rows[0].Desired.Version, Digest: digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: d.clock.Now(),
	})
	if a, target := view(); !a.Connected || len(a.Warnings) > 0 || target.View.Health != fleet.HealthCurrent || target.View.Sync != fleet.SyncSynced {
		t.Errorf("an agent that polls reads %+v, and its target %+v", a, target.View)
	}
	d.wantEvent(t, "default", "AgentConnected")

	quiet := d.lastChange(t)
	for range 3 {
		_, _, changed, err := patient.WaitApplications(d.ctx, paris, tag, time.Millisecond)
		ok(t, err)
		if changed {
			t.Error("there is something new, and nothing has happened")
		}
	}
	if got := d.changesAfter(t, quiet); len(got) > 0 {
		t.Errorf("polling writes %v", got)
	}

	// Its next polls reach another server, and then there are no more.
	d.clock.pass(time.Minute)
	_, _, err = hasty.Applications(d.ctx, paris)
	ok(t, err)
	testkit.Eventually(t, 30*time.Second, func(context.Context) error {
		if a, target := view(); a.Connected || target.View.Health != fleet.HealthStale || !target.View.StaleSince.Equal(d.clock.Now()) {
			return fmt.Errorf("the agent reads connected: %t, its target %+v", a.Connected, target.View)
		}
		return nil
	})
	d.wantEvent(t, "default", "AgentDisconnected")
	list, err := d.Deployments(d.ctx, root, "default", control.ListDeployments{Health: fleet.HealthStale})
	ok(t, err)
	if len(list) != 1 || list[0].Health != fleet.HealthStale {
		t.Errorf("listed as stale is %+v", list)
	}
}

// Invariant 4, for an agent that reports its states only in its reports.
func TestReportOfSomethingNewerIsAnAgentAhead(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		said   func(v fleet.Desired) fleet.Observed
	}{
		"Newer": {"a lost database has issued it", func(v fleet.Desired) fleet.Observed {
			return fleet.Observed{Version: fleet.Version{Epoch: v.Epoch, Generation: v.Generation + 7}, Digest: "sha256:newer", Sync: fleet.SyncSynced}
		}},
		"OtherBundle": {"the same version, and something else", func(v fleet.Desired) fleet.Observed {
			return fleet.Observed{Version: v.Version, Digest: "sha256:other", Sync: fleet.SyncSynced}
		}},
		"Deleted": {"a tombstone that the server has forgotten was carried out", func(v fleet.Desired) fleet.Observed {
			return fleet.Observed{Version: fleet.Version{Epoch: v.Epoch, Generation: v.Generation + 1}, Sync: fleet.SyncDeleted, Message: "gone"}
		}},
		"DeletedAlike": {"and it had the very version of what the server has now", func(v fleet.Desired) fleet.Observed {
			return fleet.Observed{Version: v.Version, Sync: fleet.SyncDeleted}
		}},
		"Superseded": {"another target of the deployment has taken over there", func(v fleet.Desired) fleet.Observed {
			return fleet.Observed{Version: v.Version, Digest: v.Digest, Sync: fleet.SyncRewound}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			paris := d.enroll(t, "default", "paris", nil)
			d.deploy(t, "default", "web", "")
			d.render(t, "default", "web", "1")
			before := d.targets(t, "default", "web")["paris"]
			said := tc.said(before.Desired)
			said.Health, said.AsOf = fleet.HealthCurrent, d.clock.Now()
			for range 2 { // said again it is no news
				d.says(t, paris, before.ID, said)
				v, err := d.Deployment(d.ctx, root, "default", "web")
				ok(t, err)
				if v.Sync != fleet.SyncRewound || !strings.Contains(v.Message, "ahead of the server") || !strings.Contains(v.Message, said.Message) {
					t.Errorf("%s: reads %s, %q", tc.reason, v.Sync, v.Message)
				}
			}
			events, err := d.Events(d.ctx, root, "default", store.EventFilter{})
			ok(t, err)
			events = slices.DeleteFunc(events, func(e fleet.Event) bool { return e.Reason != "Rewound" })
			if len(events) != 1 {
				t.Errorf("%d events say so", len(events))
			}
			after := d.targets(t, "default", "web")["paris"]
			if after.Desired.Version != before.Desired.Version || after.Desired.Tombstone {
				t.Errorf("before its source was read again it got %+v", after.Desired)
			}
			rows, _, err := d.Applications(d.ctx, paris)
			ok(t, err)
			if len(rows) != 1 || !rows[0].Desired.HoldPrune {
				t.Errorf("a polling agent gets %+v, and could prune by it", rows)
			}
		})
	}
}

// A superseded agent reports so for a target with a pending tombstone.
func TestReportOfSomethingOlderIsNotAhead(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", nil)
	d.deploy(t, "default", "web", "")
	d.render(t, "default", "web", "1")
	old := d.targets(t, "default", "web")["paris"]
	d.render(t, "default", "web", "2")
	d.says(t, paris, old.ID, fleet.Observed{Version: old.Desired.Version, Sync: fleet.SyncRewound, AsOf: d.clock.Now()})
	if got := d.targets(t, "default", "web")["paris"].Observed.Sync; got != fleet.SyncPending {
		t.Errorf("reads %s, and what the server has is newer", got)
	}
}
