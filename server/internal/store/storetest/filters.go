package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// covers: T1
var filterTests = map[string]func(*testing.T, store.Store){
	"find the same as a scan of everything": filtersAgreeWithAModel,
	"follow the states that users see":      filtersFollowTheView,
	"agree with the views about Stale":      staleAlike,
}

// Listed is a deployment with the data that decides whether a filter matches it.
type Listed struct {
	fleet.Deployment
	Targets  []fleet.Target
	Variants map[string]string // digests by name
}

// Matches is a plain implementation of a filter of deployments. presence returns that of an agent.
func Matches(f store.DeploymentFilter, l Listed, presence func(fleet.AgentID) fleet.Presence) bool {
	return (f.Environment == "" || f.Environment == l.EnvironmentID) &&
		(f.Repository == "" || f.Repository == l.RepositoryID) &&
		(f.Agent == "" || slices.ContainsFunc(l.Targets, func(t fleet.Target) bool { return t.AgentID == f.Agent })) &&
		(f.Sync == "" || matchesSync(f.Sync, l)) &&
		(f.Health == "" || matchesHealth(f.Health, l, presence)) &&
		(f.Reason == "" || matchesReason(f.Reason, l, presence)) &&
		matchesLabels(f.Labels, l.Labels) && f.Selector.Matches(l.Labels) &&
		(f.Text == "" || matchesText(f.Text, l))
}

func matchesSync(state fleet.SyncState, l Listed) bool {
	if state == fleet.SyncFailed && l.SourceError != "" {
		return true
	}
	return slices.ContainsFunc(l.Targets, func(t fleet.Target) bool {
		waiting := l.waiting(t)
		switch view := t.ViewAt(fleet.Presence{Connected: true}).Sync; state {
		case fleet.SyncOutOfSync:
			return waiting || view == state
		case fleet.SyncSynced:
			return view == state && !waiting
		case fleet.SyncFailed:
			return view == state || kindRefused(t)
		default:
			return view == state
		}
	})
}

// kindRefused reports whether the server refuses the newest state of a target because of a kind filter.
func kindRefused(t fleet.Target) bool {
	return t.KindError != "" && t.DetachedAt.IsZero() && !t.Desired.Tombstone
}

func matchesHealth(health fleet.Health, l Listed, presence func(fleet.AgentID) fleet.Presence) bool {
	return slices.ContainsFunc(l.Targets, func(t fleet.Target) bool {
		var p fleet.Presence
		if t.AgentID != "" {
			p = presence(t.AgentID)
		}
		return t.ViewAt(p).Health == health
	})
}

// matchesReason reports whether the deployment or one of its targets has a reason.
func matchesReason(reason fleet.Reason, l Listed, presence func(fleet.AgentID) fleet.Presence) bool {
	switch reason {
	case fleet.ReasonDeleting:
		return !l.DeletedAt.IsZero()
	case fleet.ReasonNoAgents:
		return len(l.Targets) == 0
	case fleet.ReasonAgentDisconnected:
		return matchesHealth(fleet.HealthStale, l, presence)
	case fleet.ReasonNewRevisionWaits:
		return slices.ContainsFunc(l.Targets, l.waiting)
	}
	if l.SourceError != "" && l.SourceReason == reason {
		return true
	}
	return slices.ContainsFunc(l.Targets, func(t fleet.Target) bool {
		var p fleet.Presence
		if t.AgentID != "" {
			p = presence(t.AgentID)
		}
		read := t.ViewAt(p).Reason
		switch reason {
		case fleet.ReasonDetached:
			return !t.DetachedAt.IsZero()
		case fleet.ReasonLabelMissing:
			return t.VariantError != "" && t.DetachedAt.IsZero() && !t.Desired.Tombstone
		case fleet.ReasonKindNotAllowed:
			if kindRefused(t) {
				return true
			}
		case fleet.ReasonAgentNeverConnected:
			return t.AgentID != "" && p == (fleet.Presence{}) && read == fleet.ReasonNotReported && t.DetachedAt.IsZero()
		}
		return read == reason && t.DetachedAt.IsZero()
	})
}

// waiting reports whether something newer was rendered than was sent to a target.
func (l Listed) waiting(t fleet.Target) bool {
	newest := l.Rendered.Digest
	if t.Variant != "" {
		newest = l.Variants[t.Variant]
	}
	return newest != "" && newest != t.Desired.Digest && !t.Desired.Tombstone && !t.Desired.Detached && t.DetachedAt.IsZero()
}

func matchesLabels(want, have map[string]string) bool {
	for key, value := range want {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}

func matchesText(text string, l Listed) bool {
	text = strings.ToLower(text)
	return strings.HasPrefix(l.Rendered.Commit, text) ||
		slices.ContainsFunc([]string{l.Name, l.Source.RepoURL, l.Source.Path, l.SourceError}, func(s string) bool {
			return strings.Contains(strings.ToLower(s), text)
		})
}

// filtersAgreeWithAModel creates small random tenants, uses random filters, and compares page by page.
func filtersAgreeWithAModel(t *testing.T, s store.Store) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rt)
		if err := s.Update(t.Context(), func(tx store.Tx) error { return m.fill(t.Context(), tx) }); err != nil {
			rt.Fatalf("filling: %v", err)
		}
		for range 6 {
			f := m.drawFilter(rt)
			err := s.View(t.Context(), func(tx store.Tx) error { return m.compare(t.Context(), rt, tx, f) })
			if err != nil {
				rt.Fatalf("listing %+v: %v", f, err)
			}
		}
	})
}

func (m *model) compare(ctx context.Context, rt *rapid.T, tx store.Tx, f store.DeploymentFilter) error {
	var want []string
	for _, l := range m.deployments {
		if Matches(f, l, func(id fleet.AgentID) fleet.Presence { return m.presence[id] }) {
			want = append(want, l.Name+" "+string(l.ID))
		}
	}
	slices.Sort(want)
	var got []string
	f.Limit = rapid.IntRange(1, 4).Draw(rt, "limit")
	for {
		page, err := tx.Deployments().List(ctx, m.tenant, f)
		if err != nil {
			return err
		}
		if len(page) > f.Limit {
			return fmt.Errorf("a page of %d has %d rows", f.Limit, len(page))
		}
		for _, d := range page {
			got = append(got, d.Name+" "+string(d.ID))
		}
		if len(page) < f.Limit {
			break
		}
		f.After, f.AfterID = page[len(page)-1].Name, string(page[len(page)-1].ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		rt.Fatalf("filter %+v differs (-want +got):\n%s", f, diff)
	}
	return nil
}

// filtersFollowTheView moves one target through its states.
func filtersFollowTheView(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	second := newBundle(w.tenant.ID, "two")
	id, v := w.tenant.ID, fleet.Version{Epoch: 1, Generation: 3}
	desired := fleet.Desired{Version: v, Digest: w.bundle.Digest}
	place := func(ctx context.Context, tx store.Tx) error {
		x := w.target
		x.DetachedAt, x.Variant, x.KindError = time.Time{}, "", ""
		return tx.Targets().SetPlace(ctx, x)
	}
	observe := func(ctx context.Context, tx store.Tx, o fleet.Observed) error {
		_, err := observe(ctx, tx, id, w.agent.ID, store.Report{Target: w.target.ID, Observed: o})
		return err
	}
	synced := fleet.Observed{Version: v, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: at(20)}
	steps := []struct {
		reason string
		do     func(ctx context.Context, tx store.Tx) error
		sync   []fleet.SyncState
		health fleet.Health
	}{
		{"as it is reported", place,
			[]fleet.SyncState{fleet.SyncFailed}, fleet.HealthInProgress},
		{"synced", func(ctx context.Context, tx store.Tx) error {
			if err := tx.Targets().SetDesired(ctx, id, w.target.ID, desired); err != nil {
				return err
			}
			return observe(ctx, tx, synced)
		}, []fleet.SyncState{fleet.SyncSynced}, fleet.HealthCurrent},
		{"something newer waits", func(ctx context.Context, tx store.Tx) error {
			if err := tx.Bundles().Put(ctx, second); err != nil {
				return err
			}
			return tx.Deployments().SetRendered(ctx, id, w.deployment.ID, fleet.Rendered{Commit: "beef", Digest: second.Digest, At: at(21)})
		}, []fleet.SyncState{fleet.SyncOutOfSync}, fleet.HealthCurrent},
		{"it was sent", func(ctx context.Context, tx store.Tx) error {
			next := desired
			next.Generation, next.Digest = 4, second.Digest
			return tx.Targets().SetDesired(ctx, id, w.target.ID, next)
		}, []fleet.SyncState{fleet.SyncPending}, fleet.HealthCurrent},
		{"the source has an error", func(ctx context.Context, tx store.Tx) error {
			return tx.Deployments().SetSourceError(ctx, id, w.deployment.ID, fleet.ReasonRenderFailed, "bad yaml", at(22))
		}, []fleet.SyncState{fleet.SyncPending, fleet.SyncFailed}, fleet.HealthCurrent},
		{"the agent went away", func(ctx context.Context, tx store.Tx) error {
			_, err := tx.Connections().Close(ctx, id, w.connection.SessionID, at(23), at(23))
			return err
		}, []fleet.SyncState{fleet.SyncPending, fleet.SyncFailed}, fleet.HealthStale},
		{"and was deleted", func(ctx context.Context, tx store.Tx) error { return tx.Agents().Delete(ctx, id, w.agent.ID) },
			[]fleet.SyncState{fleet.SyncPending, fleet.SyncFailed}, fleet.HealthStale},
	}
	for _, step := range steps {
		update(t, s, step.do)
		foundAs(t, s, w, step.reason, step.sync, step.health)
	}
}

// foundAs checks that the only deployment is found by these states and by no other.
func foundAs(t *testing.T, s store.Store, w *world, reason string, sync []fleet.SyncState, health fleet.Health) {
	t.Helper()
	found := func(f store.DeploymentFilter) bool { return len(listDeployments(t, s, w, f)) == 1 }
	for _, word := range syncWords {
		same(t, fmt.Sprintf("%s: found as %s", reason, word), found(store.DeploymentFilter{Sync: word}), slices.Contains(sync, word))
	}
	for _, word := range healthWords {
		same(t, fmt.Sprintf("%s: found as %s", reason, word), found(store.DeploymentFilter{Health: word}), word == health)
	}
}
