package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Wide is a tenant of many deployments, with one or two targets each, in which every filter can match nearly
// all, few, or a part at the end of the alphabet.
type Wide struct {
	Tenant fleet.TenantID
	Repos  []fleet.RepositoryID
	Envs   []fleet.EnvironmentID
	Agents []fleet.AgentID

	lost fleet.AgentID
}

const (
	wideAgents = 100
	wideRepos  = 500
	// lateAtLeast is more than are gathered and sorted.
	lateAtLeast = 2500
)

// NewWide fills a store with so many deployments. The last of its agents has never been there, and another was lost.
func NewWide(tb testing.TB, s store.Store, deployments int) *Wide {
	tb.Helper()
	w := &Wide{Tenant: fleet.NewTenantID()}
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

// WideTime is the creation time of everything in a [Wide].
var WideTime = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func (w *Wide) fillPlaces(ctx context.Context, tx store.Tx) error {
	if err := tx.Tenants().Create(ctx, fleet.Tenant{ID: w.Tenant, Name: "wide", CreatedAt: WideTime}); err != nil {
		return err
	}
	for i := range wideRepos {
		id := fleet.NewRepositoryID()
		w.Repos = append(w.Repos, id)
		url := fmt.Sprintf("https://git.example.com/teams/team-%03d.git", i)
		if err := tx.Repositories().Create(ctx, fleet.Repository{ID: id, TenantID: w.Tenant, URL: url, CreatedAt: WideTime}); err != nil {
			return err
		}
	}
	for _, name := range []string{"default", "rare", "late"} {
		id := fleet.NewEnvironmentID()
		w.Envs = append(w.Envs, id)
		if err := tx.Environments().Create(ctx, fleet.Environment{ID: id, TenantID: w.Tenant, Name: name, CreatedAt: WideTime}); err != nil {
			return err
		}
	}
	for _, digest := range []string{"sha256:a", "sha256:b"} {
		if err := tx.Bundles().Put(ctx, fleet.Bundle{TenantID: w.Tenant, Digest: digest, CreatedAt: WideTime}); err != nil {
			return err
		}
	}
	for i := range wideAgents {
		a := fleet.Agent{ID: fleet.NewAgentID(), TenantID: w.Tenant, Name: fmt.Sprintf("agent-%04d", i), Scope: fleet.ScopeCluster, CreatedAt: WideTime}
		w.Agents = append(w.Agents, a.ID)
		if err := tx.Agents().Create(ctx, a); err != nil {
			return err
		}
		if i == wideAgents-1 {
			continue // it has never been there
		}
		err := tx.Connections().Put(ctx, fleet.Connection{SessionID: fleet.NewSessionID(), AgentID: a.ID, TenantID: w.Tenant,
			Replica: "0", ConnectedAt: WideTime, LastSeenAt: WideTime})
		if err != nil {
			return err
		}
	}
	return w.lose(ctx, tx)
}

// lose adds an agent that was there.
func (w *Wide) lose(ctx context.Context, tx store.Tx) error {
	a := fleet.Agent{ID: fleet.NewAgentID(), TenantID: w.Tenant, Name: "lost", Scope: fleet.ScopeCluster, CreatedAt: WideTime}
	if err := tx.Agents().Create(ctx, a); err != nil {
		return err
	}
	w.lost = a.ID
	session := fleet.NewSessionID()
	err := tx.Connections().Put(ctx, fleet.Connection{SessionID: session, AgentID: a.ID, TenantID: w.Tenant,
		Replica: "0", ConnectedAt: WideTime, LastSeenAt: WideTime})
	if err != nil {
		return err
	}
	_, err = tx.Connections().Close(ctx, w.Tenant, session, WideTime, WideTime)
	return err
}

// deploy creates the i-th of n. Three are rare in every respect, many at the end are late in every respect.
func (w *Wide) deploy(ctx context.Context, tx store.Tx, i, n int) error {
	rare, late := i%(n/3+1) == n/6, i >= n-max(n/10, lateAtLeast)
	d := fleet.Deployment{
		ID: fleet.NewDeploymentID(), TenantID: w.Tenant, Name: fmt.Sprintf("team-%03d-app-%05d", i*wideRepos/n, i),
		RepositoryID: w.Repos[i*wideRepos/n], EnvironmentTenant: w.Tenant, EnvironmentID: w.Envs[0], CreatedAt: WideTime,
		Labels:   map[string]string{"tier": "web", "team": fmt.Sprintf("t%03d", i*wideRepos/n)},
		Source:   fleet.Source{Path: fmt.Sprintf("apps/app-%05d/overlays/eu", i), Revision: "main"},
		Rendered: fleet.Rendered{Commit: fmt.Sprintf("%040x", i/100), Digest: "sha256:a", At: WideTime},
	}
	state, health, digest, second := fleet.SyncSynced, fleet.HealthCurrent, "sha256:a", w.Agents[1+i%(wideAgents-2)]
	switch {
	case rare:
		d.EnvironmentID, d.Labels["rare"], d.SourceError = w.Envs[1], "yes", "strange trouble"
		d.Source.Path += "/needle"
		state, health, digest, second = fleet.SyncSyncing, fleet.HealthInProgress, "sha256:b", w.Agents[wideAgents-1]
	case late:
		d.EnvironmentID, d.Labels["late"] = w.Envs[2], "yes"
		state, health, second = fleet.SyncRewound, fleet.HealthTerminating, w.Agents[wideAgents-2]
	}
	if err := tx.Deployments().Create(ctx, d); err != nil {
		return err
	}
	on := []fleet.AgentID{w.Agents[0]}
	if i%2 == 0 || rare || late {
		on = append(on, second)
	}
	if rare {
		on = append(on, w.lost)
	}
	for _, agent := range on {
		v := fleet.Version{Epoch: 1, Generation: 1}
		err := tx.Targets().Create(ctx, fleet.Target{ID: fleet.NewTargetID(), TenantID: w.Tenant, DeploymentID: d.ID,
			AgentTenant: w.Tenant, AgentID: agent, Desired: fleet.Desired{Version: v, Digest: digest},
			Observed: fleet.Observed{Version: v, Digest: digest, Sync: state, Health: health, AsOf: WideTime}})
		if err != nil {
			return err
		}
	}
	return nil
}

// Filters returns filters by how much of the tenant they match.
func (w *Wide) Filters() map[string]store.DeploymentFilter {
	return map[string]store.DeploymentFilter{
		"none":               {},
		"environment all":    {Environment: w.Envs[0]},
		"environment three":  {Environment: w.Envs[1]},
		"environment late":   {Environment: w.Envs[2]},
		"repository one":     {Repository: w.Repos[wideRepos/2]},
		"agent all":          {Agent: w.Agents[0]},
		"agent three":        {Agent: w.Agents[wideAgents-1]},
		"agent late":         {Agent: w.Agents[wideAgents-2]},
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
		"labels many late":   {Labels: map[string]string{"late": "yes", "tier": "web"}},
		"labels 64":          {Labels: manyLabels(64)},
		"text all":           {Text: "app"},
		"text three":         {Text: "needle"},
		"text one":           {Text: "app-01234"},
		"text repository":    {Text: "team-250.git"},
		"text commit":        {Text: fmt.Sprintf("%040x", 33)},
		"text error":         {Text: "Strange"},
		"text nothing":       {Text: "nowhere"},
		"all at once":        {Environment: w.Envs[0], Agent: w.Agents[0], Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, Labels: map[string]string{"tier": "web"}, Text: "app"},
		"all at once, three": {Environment: w.Envs[1], Agent: w.Agents[0], Labels: map[string]string{"tier": "web"}, Text: "app"},
	}
}

// manyLabels are so many, of which nearly all deployments have the first.
func manyLabels(n int) map[string]string {
	out := map[string]string{"tier": "web"}
	for i := 1; i < n; i++ {
		out[fmt.Sprintf("label-%02d", i)] = "yes"
	}
	return out
}

// Crowd creates one deployment on n agents.
func (w *Wide) Crowd(tb testing.TB, s store.Store, n int) fleet.DeploymentID {
	tb.Helper()
	d := fleet.Deployment{
		ID: fleet.NewDeploymentID(), TenantID: w.Tenant, Name: "crowd", RepositoryID: w.Repos[0],
		EnvironmentTenant: w.Tenant, EnvironmentID: w.Envs[0], CreatedAt: WideTime,
	}
	err := s.Update(tb.Context(), func(tx store.Tx) error {
		if err := tx.Deployments().Create(tb.Context(), d); err != nil {
			return err
		}
		for i := range n {
			a := fleet.Agent{ID: fleet.NewAgentID(), TenantID: w.Tenant, Name: fmt.Sprintf("crowd-%05d", i), Scope: fleet.ScopeCluster, CreatedAt: WideTime}
			if err := tx.Agents().Create(tb.Context(), a); err != nil {
				return err
			}
			c := fleet.Connection{
				SessionID: fleet.NewSessionID(), AgentID: a.ID, TenantID: w.Tenant, Replica: "0", ConnectedAt: WideTime, LastSeenAt: WideTime,
			}
			if err := tx.Connections().Put(tb.Context(), c); err != nil {
				return err
			}
			t := fleet.Target{ID: fleet.NewTargetID(), TenantID: w.Tenant, DeploymentID: d.ID, AgentTenant: w.Tenant, AgentID: a.ID}
			if err := tx.Targets().Create(tb.Context(), t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return d.ID
}
