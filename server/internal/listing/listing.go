package listing

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Agents lists every agent that matches, page by page.
func Agents(ctx context.Context, tx store.Tx, tenant fleet.TenantID, f store.AgentFilter) ([]fleet.Agent, error) {
	return All(func(page store.Page) ([]fleet.Agent, error) {
		f.Page = page
		return tx.Agents().List(ctx, tenant, f)
	}, func(a fleet.Agent) string { return a.Name })
}

// All reads a listing to its end, page by page.
func All[T any](list func(store.Page) ([]T, error), key func(T) string) ([]T, error) {
	const size = 500
	var out []T
	page := store.Page{Limit: size}
	for {
		items, err := list(page)
		if err != nil {
			return nil, err
		}
		out = append(out, items...)
		if len(items) < size {
			return out, nil
		}
		page.After = key(items[len(items)-1])
	}
}

// Tenants lists every tenant.
func Tenants(ctx context.Context, tx store.Tx) ([]fleet.Tenant, error) {
	return All(func(page store.Page) ([]fleet.Tenant, error) {
		return tx.Tenants().List(ctx, page)
	}, func(t fleet.Tenant) string { return t.Name })
}

// Environments lists every environment of a tenant.
func Environments(ctx context.Context, tx store.Tx, tenant fleet.TenantID) ([]fleet.Environment, error) {
	return All(func(page store.Page) ([]fleet.Environment, error) {
		return tx.Environments().List(ctx, tenant, page)
	}, func(e fleet.Environment) string { return e.Name })
}

// Deployments lists every deployment of a tenant, those on their way out too.
func Deployments(ctx context.Context, tx store.Tx, tenant fleet.TenantID) ([]fleet.Deployment, error) {
	const size = 500
	var out []fleet.Deployment
	page := store.Page{Limit: size}
	for {
		items, err := tx.Deployments().List(ctx, tenant, store.DeploymentFilter{Page: page})
		if err != nil {
			return nil, err
		}
		out = append(out, items...)
		if len(items) < size {
			return out, nil
		}
		last := items[len(items)-1]
		page.After, page.AfterID = last.Name, string(last.ID)
	}
}

// AgentsOf reads the agents of targets, those of each tenant at once. known are some that were read before.
func AgentsOf(ctx context.Context, tx store.Tx, targets []fleet.Target, known map[fleet.AgentID]fleet.Agent) (map[fleet.AgentID]fleet.Agent, error) {
	isKnown := func(t fleet.Target) bool { _, ok := known[t.AgentID]; return ok }
	missing := slices.DeleteFunc(slices.Clone(targets), isKnown)
	if len(missing) == 0 {
		return known, nil
	}
	out, err := FindAgents(ctx, tx, missing)
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		if _, ok := out[t.AgentID]; ok {
			continue
		}
		agent, ok := known[t.AgentID]
		if !ok {
			return nil, fmt.Errorf("agent %q: %w", t.AgentName, store.ErrNotFound)
		}
		out[t.AgentID] = agent
	}
	return out, nil
}

// FindAgents reads the agents of targets; those that are gone are absent.
func FindAgents(ctx context.Context, tx store.Tx, targets []fleet.Target) (map[fleet.AgentID]fleet.Agent, error) {
	ids := map[fleet.TenantID]map[fleet.AgentID]bool{}
	for _, t := range targets {
		if ids[t.AgentTenant] == nil {
			ids[t.AgentTenant] = map[fleet.AgentID]bool{}
		}
		ids[t.AgentTenant][t.AgentID] = true
	}
	out := make(map[fleet.AgentID]fleet.Agent, len(targets))
	for tenant, ids := range ids {
		agents, err := tx.Agents().Of(ctx, tenant, slices.Sorted(maps.Keys(ids)))
		if err != nil {
			return nil, err
		}
		for _, a := range agents {
			out[a.ID] = a
		}
	}
	return out, nil
}

// Repositories lists every repository of a tenant.
func Repositories(ctx context.Context, tx store.Tx, tenant fleet.TenantID) ([]fleet.Repository, error) {
	return All(func(page store.Page) ([]fleet.Repository, error) {
		return tx.Repositories().List(ctx, tenant, store.RepositoryFilter{Page: page})
	}, func(r fleet.Repository) string { return r.URL })
}
