package storetest

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// configCalls are the calls about configuration in Git.
var configCalls = []call{
	{"AgentConfigs.Put", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		c := w.config
		c.TenantID = tenant
		return nil, tx.AgentConfigs().Put(ctx, c)
	}},
	{"AgentConfigs.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.AgentConfigs().Get(ctx, tenant, w.agent.ID)
	}},
	{"AgentConfigs.OfAgents", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.AgentConfigs().OfAgents(ctx, tenant, []fleet.AgentID{w.agent.ID})
	}},
	{"AgentConfigs.OfRepository", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.AgentConfigs().OfRepository(ctx, tenant, w.repo.ID)
	}},
	{"AgentConfigs.All", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.AgentConfigs().All(ctx, tenant)
	}},
	{"AgentConfigs.SetRead", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		c := w.config
		c.TenantID, c.State = tenant, fleet.ConfigAbsent
		return nil, tx.AgentConfigs().SetRead(ctx, c)
	}},
	{"AgentConfigs.Delete", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.AgentConfigs().Delete(ctx, tenant, w.agent.ID)
	}},
	{"Declarations.Put", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		d := w.declares
		d.TenantID, d.File = tenant, "mallory.yaml"
		return nil, tx.Declarations().Put(ctx, d)
	}},
	{"Declarations.Remove", true, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return []int(nil), tx.Declarations().Remove(ctx, tenant, w.deployment.ID)
	}},
	{"Declarations.OfAgent", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Declarations().OfAgent(ctx, tenant, w.agent.Name)
	}},
	{"Declarations.Of", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Declarations().Of(ctx, tenant, []fleet.DeploymentID{w.deployment.ID})
	}},
	{"Owners.Put", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		o := ownedTenant(w)
		o.TenantID, o.ID, o.Owner.UID = tenant, string(tenant), "uid-"+string(tenant)
		return nil, tx.Owners().Put(ctx, o)
	}},
	{"Owners.Remove", true, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return []int(nil), tx.Owners().Remove(ctx, tenant, w.owned.Kind, w.owned.ID)
	}},
	{"Owners.Of", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Owners().Of(ctx, tenant, w.owned.Kind, []string{w.owned.ID})
	}},
	{"Owners.ByOwner", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Owners().ByOwner(ctx, tenant, w.owned.Owner.Kind, w.owned.Owner.Name)
	}},
	{"Owners.All", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Owners().All(ctx, tenant)
	}},
	{"Owners.ListAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Owners().ListAllTenants(ctx, w.owned.Kind)
	}},
	{"Owners.NamespaceAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Owners().NamespaceAllTenants(ctx, ownedTenant(w).Owner.UID)
	}},
	{"GitLabProjects.Put", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		p := w.project
		p.TenantID = tenant
		return nil, tx.GitLabProjects().Put(ctx, p)
	}},
	{"GitLabProjects.Delete", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.GitLabProjects().Delete(ctx, tenant, w.project.Project)
	}},
	{"GitLabProjects.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.GitLabProjects().List(ctx, tenant, store.Page{})
	}},
}
