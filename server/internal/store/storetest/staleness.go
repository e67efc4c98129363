package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Stale is defined twice: in [fleet.Target.LostSince] for views, and in SQL for filters and counts.
//
// covers: D7
func staleAlike(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	heard := fleet.Observed{Version: fleet.Version{Epoch: 1, Generation: 1}, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: at(30)}
	none := fleet.Observed{}
	cases := []struct {
		reason      string
		said        fleet.Observed
		connections []time.Time // when each replica disconnected; zero if connected
		deleted     bool
		health      fleet.Health
		since       time.Time
	}{
		{"it has never connected", none, nil, false, fleet.HealthUnknown, time.Time{}},
		{"it has never connected, and another of its name has reported before", heard, nil, false, fleet.HealthStale, at(30)},
		{"it is connected and has not reported", none, []time.Time{{}}, false, fleet.HealthUnknown, time.Time{}},
		{"it is there and well", heard, []time.Time{{}}, false, fleet.HealthCurrent, time.Time{}},
		{"one replica of it is there", heard, []time.Time{at(40), {}}, false, fleet.HealthCurrent, time.Time{}},
		{"it was lost before its first report", none, []time.Time{at(20)}, false, fleet.HealthStale, at(20)},
		{"it was lost after its last report", heard, []time.Time{at(20), at(40)}, false, fleet.HealthStale, at(40)},
		{"its last report is later than its last beat", heard, []time.Time{at(20)}, false, fleet.HealthStale, at(30)},
		{"it was deleted", heard, []time.Time{{}}, true, fleet.HealthStale, at(30)},
		{"it was deleted before its first report", none, []time.Time{at(20)}, true, fleet.HealthUnknown, time.Time{}},
	}
	for i, tc := range cases {
		a, d := newAgent(w.tenant.ID, fmt.Sprint("agent-", i)), newDeployment(w, fmt.Sprint("app-", i))
		x := newTarget(w, d, a)
		x.Desired, x.Observed, x.DetachedAt, x.Variant = fleet.Desired{Version: heard.Version}, tc.said, time.Time{}, ""
		presence := fleet.Presence{}
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			steps := []func() error{
				func() error { return tx.Agents().Create(ctx, a) }, func() error { return tx.Deployments().Create(ctx, d) },
				func() error { return tx.Targets().Create(ctx, x) },
			}
			for n, left := range tc.connections {
				c := newConnection(a, fmt.Sprint(n))
				if c.DisconnectedAt = left; !left.IsZero() {
					c.LastSeenAt = left
				}
				presence.Connected = presence.Connected || left.IsZero()
				if left.After(presence.LastSeen) {
					presence.LastSeen = left
				}
				steps = append(steps, func() error { return tx.Connections().Put(ctx, c) })
			}
			if tc.deleted {
				presence = fleet.Presence{}
				steps = append(steps, func() error { return tx.Agents().Delete(ctx, w.tenant.ID, a.ID) })
			}
			for _, step := range steps {
				if err := step(); err != nil {
					return err
				}
			}
			return nil
		})
		view := x.ViewAt(presence)
		same(t, tc.reason+": the view", view.Health, tc.health)
		same(t, tc.reason+": the age in the view", view.StaleSince.UnixMicro(), tc.since.UnixMicro())
		staleInStore(t, s, w, d, tc.reason, view)
	}
}

// staleInStore checks that the only target of d is found by the values of its view, and by no others.
func staleInStore(t *testing.T, s store.Store, w *world, d fleet.Deployment, reason string, view fleet.View) {
	t.Helper()
	stale := view.Health == fleet.HealthStale
	for _, word := range healthWords {
		listed := false
		for _, found := range listDeployments(t, s, w, store.DeploymentFilter{Health: word}) {
			listed = listed || found.ID == d.ID
		}
		same(t, fmt.Sprintf("%s: deployment found as %s", reason, word), listed, word == view.Health)
		page := func(f store.TargetFilter) int {
			return len(read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Target, error) {
				return tx.Targets().PageOfDeployment(ctx, w.tenant.ID, d.ID, f)
			}))
		}
		same(t, fmt.Sprintf("%s: target found as %s", reason, word), page(store.TargetFilter{Health: word}) == 1, word == view.Health)
		same(t, reason+": target found by staleness", page(store.TargetFilter{Stale: &stale}), 1)
	}
	tally := read(t, s, func(ctx context.Context, tx store.Tx) ([]store.TargetTally, error) {
		return tx.Targets().Tally(ctx, w.tenant.ID, []fleet.DeploymentID{d.ID})
	})
	same(t, reason+": groups", len(tally), 1)
	same(t, reason+": counted as stale", tally[0].Stale, stale)
	same(t, reason+": counted since", tally[0].StaleSince.UnixMicro(), view.StaleSince.UnixMicro())
}
