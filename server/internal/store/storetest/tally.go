package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// covers: T1, T8
var tallyTests = map[string]func(*testing.T, store.Store){
	"count and find targets by the states that users see": wordsAgreeWithAModel,
}

// reading is a target with the states that users see.
type reading struct {
	fleet.Target
	fleet.View
	waiting bool
}

// wordsAgreeWithAModel creates small random tenants, with some variants that cannot be rendered, counts their
// targets, and searches for some.
func wordsAgreeWithAModel(t *testing.T, s store.Store) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rt)
		problems := map[fleet.DeploymentID]string{}
		err := s.Update(t.Context(), func(tx store.Tx) error {
			if err := m.fill(t.Context(), tx); err != nil {
				return err
			}
			for _, l := range m.deployments {
				problems[l.ID] = rapid.SampledFrom([]string{"", "no such folder"}).Draw(rt, "problem")
				v := fleet.Variant{Name: "v", Rendered: fleet.Rendered{Digest: l.Variants["v"]}, Error: problems[l.ID], Reason: fleet.ReasonPathNotFound}
				if err := tx.Deployments().PutVariant(t.Context(), m.tenant, l.ID, v); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			rt.Fatalf("filling: %v", err)
		}
		err = s.View(t.Context(), func(tx store.Tx) error {
			if err := m.compareTally(t.Context(), rt, tx, problems); err != nil {
				return err
			}
			for _, l := range m.deployments {
				if err := m.comparePages(t.Context(), rt, tx, l, problems[l.ID]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			rt.Fatalf("reading: %v", err)
		}
	})
}

// readings is a plain implementation of the states that users see of the targets of a deployment, by agent
// name.
func (m *model) readings(l Listed, problem string, held bool) []reading {
	var out []reading
	for _, t := range l.Targets {
		r := reading{Target: t, View: t.ViewAt(m.presence[t.AgentID])}
		r.waiting = l.waiting(t)
		calm := r.View.Sync == fleet.SyncSynced || r.View.Sync == fleet.SyncPending
		switch {
		case !t.DetachedAt.IsZero():
			r.View.Sync, r.View.Reason = fleet.SyncDetached, fleet.ReasonDetached
		case t.Desired.Tombstone:
		case t.VariantError != "":
			r.View.Sync, r.View.Reason = fleet.SyncFailed, fleet.ReasonLabelMissing
		case t.KindError != "":
			r.View.Sync, r.View.Reason = fleet.SyncFailed, fleet.ReasonKindNotAllowed
		case t.Variant == "v" && problem != "":
			r.View.Sync, r.View.Reason = fleet.SyncFailed, fleet.ReasonPathNotFound
		case held && r.waiting && calm:
			r.View.Sync, r.View.Reason = fleet.SyncOutOfSync, fleet.ReasonNewRevisionWaits
		}
		if r.View.Reason == fleet.ReasonNotReported && t.AgentID != "" && m.presence[t.AgentID] == (fleet.Presence{}) {
			r.View.Reason = fleet.ReasonAgentNeverConnected
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b reading) int { return strings.Compare(a.AgentName, b.AgentName) })
	return out
}

func (m *model) compareTally(ctx context.Context, rt *rapid.T, tx store.Tx, problems map[fleet.DeploymentID]string) error {
	want := map[string]store.TargetTally{}
	ids := []fleet.DeploymentID{fleet.NewDeploymentID()}
	for _, l := range m.deployments {
		ids = append(ids, l.ID)
		for _, r := range m.readings(l, problems[l.ID], false) {
			known := r.ViewAt(fleet.Presence{Connected: true}).Health
			g := store.TargetTally{
				Deployment: l.ID, Sync: r.View.Sync, Health: known, Stale: !r.StaleSince.IsZero(), Waiting: r.waiting,
				First: r.ID, FirstAgent: r.AgentName, StaleSince: r.StaleSince,
				Never: r.AgentID != "" && !m.presence[r.AgentID].Connected && r.StaleSince.IsZero(),
			}
			if r.waiting {
				g.Sent = r.Desired.Commit
			}
			key := groupOf(g)
			if had, ok := want[key]; ok {
				g.Count, g.First, g.FirstAgent = had.Count, had.First, had.FirstAgent
				if had.StaleSince.Before(g.StaleSince) {
					g.StaleSince = had.StaleSince
				}
			}
			g.Count++
			want[key] = g
		}
	}
	groups, err := tx.Targets().Tally(ctx, m.tenant, ids)
	got := map[string]store.TargetTally{}
	for _, g := range groups {
		got[groupOf(g)] = g
	}
	if diff := cmp.Diff(want, got); diff != "" && err == nil {
		rt.Fatalf("tally differs (-want +got):\n%s", diff)
	}
	return err
}

func groupOf(g store.TargetTally) string {
	return fmt.Sprint(g.Deployment, " ", g.Sync, " ", g.Health, " ", g.Stale, " ", g.Never, " ", g.Waiting, " ", g.Sent)
}

func (m *model) comparePages(ctx context.Context, rt *rapid.T, tx store.Tx, l Listed, problem string) error {
	f := store.TargetFilter{
		Sync:   rapid.SampledFrom(append([]fleet.SyncState{""}, syncWords...)).Draw(rt, "sync"),
		Health: rapid.SampledFrom(append([]fleet.Health{"", ""}, healthWords...)).Draw(rt, "health"),
		Reason: rapid.SampledFrom(append([]fleet.Reason{"", ""}, reasonWords...)).Draw(rt, "reason"),
		Agent:  rapid.SampledFrom([]string{"", "", "agent-1"}).Draw(rt, "agent"),
		Stale:  rapid.SampledFrom([]*bool{nil, nil, new(true), new(false)}).Draw(rt, "stale"),
		Held:   rapid.Bool().Draw(rt, "held"),
	}
	var want, got []fleet.TargetID
	for _, r := range m.readings(l, problem, f.Held) {
		if (f.Sync == "" || f.Sync == r.View.Sync) && (f.Health == "" || f.Health == r.View.Health) && (f.Reason == "" || f.Reason == r.View.Reason) && (f.Agent == "" || f.Agent == r.AgentName) &&
			(f.Stale == nil || *f.Stale == !r.StaleSince.IsZero()) {
			want = append(want, r.ID)
		}
	}
	f.Limit = rapid.IntRange(1, 3).Draw(rt, "limit")
	for {
		page, err := tx.Targets().PageOfDeployment(ctx, m.tenant, l.ID, f)
		if err != nil {
			return err
		}
		for _, t := range page {
			got = append(got, t.ID)
		}
		if len(page) < f.Limit {
			break
		}
		f.After, f.AfterID = page[len(page)-1].AgentName, string(page[len(page)-1].ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		rt.Fatalf("targets by %+v differ (-want +got):\n%s", f, diff)
	}
	return nil
}
