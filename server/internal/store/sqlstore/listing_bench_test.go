package sqlstore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
)

// wide is a tenant of many deployments, with one or two targets each, in which every filter can
// match nearly all, few, or a part at the far end of the alphabet.
type wide struct {
	store  store.Store
	path   string
	tenant fleet.TenantID
	repos  []fleet.RepositoryID
	envs   []fleet.EnvironmentID
	agents []fleet.AgentID
}

const (
	wideAgents = 100
	wideRepos  = 500
	// lateAtLeast is more than are gathered and sorted.
	lateAtLeast = 2500
)

func newWide(tb testing.TB, deployments int) *wide {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "kedge.db")
	s, err := sqlite.Open(tb.Context(), sqlite.Config{Path: path})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	w := &wide{store: s, path: path, tenant: fleet.NewTenantID()}
	update := func(fn func(ctx context.Context, tx store.Tx) error) {
		tb.Helper()
		if err := s.Update(tb.Context(), func(tx store.Tx) error { return fn(tb.Context(), tx) }); err != nil {
			tb.Fatal(err)
		}
	}
	update(w.fillPlaces)
	for from := 0; from < deployments; from += 1000 {
		update(func(ctx context.Context, tx store.Tx) error {
			for i := from; i < min(from+1000, deployments); i++ {
				if err := w.deploy(ctx, tx, i, deployments); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return w
}

var wideTime = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func (w *wide) fillPlaces(ctx context.Context, tx store.Tx) error {
	if err := tx.Tenants().Create(ctx, fleet.Tenant{ID: w.tenant, Name: "wide", CreatedAt: wideTime}); err != nil {
		return err
	}
	for i := range wideRepos {
		id := fleet.NewRepositoryID()
		w.repos = append(w.repos, id)
		url := fmt.Sprintf("https://git.example.com/teams/team-%03d.git", i)
		if err := tx.Repositories().Create(ctx, fleet.Repository{ID: id, TenantID: w.tenant, URL: url, CreatedAt: wideTime}); err != nil {
			return err
		}
	}
	for _, name := range []string{"default", "rare", "late"} {
		id := fleet.NewEnvironmentID()
		w.envs = append(w.envs, id)
		if err := tx.Environments().Create(ctx, fleet.Environment{ID: id, TenantID: w.tenant, Name: name, CreatedAt: wideTime}); err != nil {
			return err
		}
	}
	for _, digest := range []string{"sha256:a", "sha256:b"} {
		if err := tx.Bundles().Put(ctx, fleet.Bundle{TenantID: w.tenant, Digest: digest, CreatedAt: wideTime}); err != nil {
			return err
		}
	}
	for i := range wideAgents {
		a := fleet.Agent{ID: fleet.NewAgentID(), TenantID: w.tenant, Name: fmt.Sprintf("agent-%04d", i), Scope: fleet.ScopeCluster, CreatedAt: wideTime}
		w.agents = append(w.agents, a.ID)
		if err := tx.Agents().Create(ctx, a); err != nil {
			return err
		}
		if i == wideAgents-1 {
			continue // the last one is away
		}
		err := tx.Connections().Put(ctx, fleet.Connection{SessionID: fleet.NewSessionID(), AgentID: a.ID, TenantID: w.tenant,
			Replica: "0", ConnectedAt: wideTime, LastSeenAt: wideTime})
		if err != nil {
			return err
		}
	}
	return nil
}

// deploy makes the i-th of n. Three are rare in every respect, many at the end are late in every respect.
func (w *wide) deploy(ctx context.Context, tx store.Tx, i, n int) error {
	rare, late := i%(n/3+1) == n/6, i >= n-max(n/10, lateAtLeast)
	d := fleet.Deployment{
		ID: fleet.NewDeploymentID(), TenantID: w.tenant, Name: fmt.Sprintf("team-%03d-app-%05d", i*wideRepos/n, i),
		RepositoryID: w.repos[i*wideRepos/n], EnvironmentTenant: w.tenant, EnvironmentID: w.envs[0], CreatedAt: wideTime,
		Labels:   map[string]string{"tier": "web", "team": fmt.Sprintf("t%03d", i*wideRepos/n)},
		Source:   fleet.Source{Path: fmt.Sprintf("apps/app-%05d/overlays/eu", i), Revision: "main"},
		Rendered: fleet.Rendered{Commit: fmt.Sprintf("%040x", i/100), Digest: "sha256:a", At: wideTime},
	}
	state, health, digest, second := fleet.SyncSynced, fleet.HealthCurrent, "sha256:a", w.agents[1+i%(wideAgents-2)]
	switch {
	case rare:
		d.EnvironmentID, d.Labels["rare"], d.SourceError = w.envs[1], "yes", "strange trouble"
		d.Source.Path += "/needle"
		state, health, digest, second = fleet.SyncSyncing, fleet.HealthInProgress, "sha256:b", w.agents[wideAgents-1]
	case late:
		d.EnvironmentID, d.Labels["late"] = w.envs[2], "yes"
		state, health, second = fleet.SyncRewound, fleet.HealthTerminating, w.agents[wideAgents-2]
	}
	if err := tx.Deployments().Create(ctx, d); err != nil {
		return err
	}
	on := []fleet.AgentID{w.agents[0]}
	if i%2 == 0 || rare || late {
		on = append(on, second)
	}
	for _, agent := range on {
		v := fleet.Version{Epoch: 1, Generation: 1}
		err := tx.Targets().Create(ctx, fleet.Target{ID: fleet.NewTargetID(), TenantID: w.tenant, DeploymentID: d.ID,
			AgentTenant: w.tenant, AgentID: agent, Desired: fleet.Desired{Version: v, Digest: digest},
			Observed: fleet.Observed{Version: v, Digest: digest, Sync: state, Health: health, AsOf: wideTime}})
		if err != nil {
			return err
		}
	}
	return nil
}

// filters names what is asked for by how much of the tenant matches.
func (w *wide) filters() map[string]store.DeploymentFilter {
	return map[string]store.DeploymentFilter{
		"none":               {},
		"environment all":    {Environment: w.envs[0]},
		"environment three":  {Environment: w.envs[1]},
		"environment late":   {Environment: w.envs[2]},
		"repository one":     {Repository: w.repos[wideRepos/2]},
		"agent all":          {Agent: w.agents[0]},
		"agent three":        {Agent: w.agents[wideAgents-1]},
		"agent late":         {Agent: w.agents[wideAgents-2]},
		"sync all":           {Sync: fleet.SyncSynced},
		"sync three":         {Sync: fleet.SyncSyncing},
		"sync late":          {Sync: fleet.SyncRewound},
		"sync failed":        {Sync: fleet.SyncFailed},
		"sync out-of-sync":   {Sync: fleet.SyncOutOfSync},
		"sync nothing":       {Sync: fleet.SyncPending},
		"health all":         {Health: fleet.HealthCurrent},
		"health three":       {Health: fleet.HealthInProgress},
		"health late":        {Health: fleet.HealthTerminating},
		"health stale":       {Health: fleet.HealthStale},
		"health nothing":     {Health: fleet.HealthFailed},
		"labels all":         {Labels: map[string]string{"tier": "web"}},
		"labels three":       {Labels: map[string]string{"tier": "web", "rare": "yes"}},
		"labels late":        {Labels: map[string]string{"late": "yes"}},
		"labels nothing":     {Labels: map[string]string{"tier": "db"}},
		"text all":           {Text: "app"},
		"text three":         {Text: "needle"},
		"text one":           {Text: "app-01234"},
		"text repository":    {Text: "team-250.git"},
		"text commit":        {Text: fmt.Sprintf("%040x", 33)},
		"text error":         {Text: "Strange"},
		"text nothing":       {Text: "nowhere"},
		"all at once":        {Environment: w.envs[0], Agent: w.agents[0], Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, Labels: map[string]string{"tier": "web"}, Text: "app"},
		"all at once, three": {Environment: w.envs[1], Agent: w.agents[0], Labels: map[string]string{"tier": "web"}, Text: "app"},
	}
}

// BenchmarkList is one page of each filter, at two sizes: the figures should be the same. The least
// is told, too, since it is what a machine that does other things at the same time can say.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{6000, 50_000} {
		w := newWide(b, n)
		for name, f := range w.filters() {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				rows, least := 0, time.Hour
				for b.Loop() {
					start := time.Now()
					err := w.store.View(b.Context(), func(tx store.Tx) error {
						out, err := tx.Deployments().List(b.Context(), w.tenant, f)
						rows = len(out)
						return err
					})
					if err != nil {
						b.Fatal(err)
					}
					least = min(least, time.Since(start))
				}
				b.ReportMetric(float64(rows), "rows")
				b.ReportMetric(float64(least.Microseconds())/1000, "min-ms")
			})
		}
	}
}
