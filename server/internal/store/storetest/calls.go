package storetest

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// outcome is what a call answers when it is made for another tenant than the one whose ids it uses.
type outcome int

const (
	notFound outcome = iota // ErrNotFound
	empty                   // nothing, and no error
	own                     // it makes or trims something of the other tenant's own
	global                  // it takes no tenant
)

// call is one method of a transaction, made with the ids of w for the given tenant.
type call struct {
	name    string
	writes  bool
	foreign outcome
	do      func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error)
}

// calls has one entry for every method of every aggregate; a test checks that.
var calls = []call{
	{"Tenants.Create", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Tenants().Create(ctx, fleet.Tenant{ID: fleet.NewTenantID(), Name: "new", CreatedAt: at(1)})
	}},
	{"Tenants.ByName", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Tenants().ByName(ctx, w.tenant.Name)
	}},
	{"Tenants.List", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Tenants().List(ctx)
	}},
	{"Agents.Create", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Agents().Create(ctx, newAgent(tenant, "new"))
	}},
	{"Agents.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Agents().Get(ctx, tenant, w.agent.ID)
	}},
	{"Agents.ByName", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Agents().ByName(ctx, tenant, w.agent.Name)
	}},
	{"Agents.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Agents().List(ctx, tenant, store.Page{})
	}},
	{"Agents.Delete", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Agents().Delete(ctx, tenant, w.agent.ID)
	}},
	{"Connections.Put", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		c := newConnection(w.agent, w.connection.Replica)
		c.TenantID = tenant
		return nil, tx.Connections().Put(ctx, c)
	}},
	{"Connections.Close", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Connections().Close(ctx, w.connection.SessionID, at(50), at(51))
	}},
	{"Connections.CloseAllTenants", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Connections().CloseAllTenants(ctx, at(50))
	}},
	{"Connections.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Connections().List(ctx, tenant)
	}},
	{"Connections.OfAgent", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Connections().OfAgent(ctx, tenant, w.agent.ID)
	}},
	{"Connections.Beat", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Connections().Beat(ctx, at(50))
	}},
	{"Connections.LastBeat", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Connections().LastBeat(ctx)
	}},
	{"Tokens.CreateAgentToken", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		token := newToken(w.agent)
		token.TenantID = tenant
		return nil, tx.Tokens().CreateAgentToken(ctx, token)
	}},
	{"Tokens.AgentTokenByHashAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Tokens().AgentTokenByHashAllTenants(ctx, w.token.Hash)
	}},
	{"Tokens.AgentTokens", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Tokens().AgentTokens(ctx, tenant, w.agent.ID)
	}},
	{"Tokens.RevokeAgentToken", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Tokens().RevokeAgentToken(ctx, tenant, w.token.ID, at(50))
	}},
	{"Tokens.CreateAPIToken", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		id := fleet.NewTokenID()
		return nil, tx.Tokens().CreateAPIToken(ctx, fleet.APIToken{ID: id, Role: fleet.RoleFleetAdmin, Hash: hashOf(id), CreatedAt: at(1)})
	}},
	{"Tokens.APITokenByHash", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		_, err := tx.Tokens().APITokenByHash(ctx, hashOf("nobody's"))
		return nil, ignoreNotFound(err)
	}},
	{"Tokens.CountAPITokens", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Tokens().CountAPITokens(ctx)
	}},
	{"Environments.Create", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Environments().Create(ctx, fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: tenant, Name: "new", CreatedAt: at(1)})
	}},
	{"Environments.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Environments().Get(ctx, tenant, w.env.ID)
	}},
	{"Environments.ByName", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Environments().ByName(ctx, tenant, w.env.Name)
	}},
	{"Environments.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Environments().List(ctx, tenant, store.Page{})
	}},
	{"Repositories.Create", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Repositories().Create(ctx, fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: tenant, URL: "https://new", CreatedAt: at(1)})
	}},
	{"Repositories.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Repositories().Get(ctx, tenant, w.repo.ID)
	}},
	{"Repositories.GetAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Repositories().GetAllTenants(ctx, w.repo.ID)
	}},
	{"Repositories.ByURL", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Repositories().ByURL(ctx, tenant, w.repo.URL)
	}},
	{"Repositories.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Repositories().List(ctx, tenant)
	}},
	{"Repositories.ListAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Repositories().ListAllTenants(ctx)
	}},
	{"Repositories.SetChecked", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Repositories().SetChecked(ctx, tenant, w.repo.ID, at(50), "broken")
	}},
	{"Deployments.Create", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		d := newDeployment(w, "new")
		d.TenantID = tenant
		return nil, tx.Deployments().Create(ctx, d)
	}},
	{"Deployments.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Deployments().Get(ctx, tenant, w.deployment.ID)
	}},
	{"Deployments.ByName", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Deployments().ByName(ctx, tenant, w.deployment.Name)
	}},
	{"Deployments.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Deployments().List(ctx, tenant, store.Page{})
	}},
	{"Deployments.OfRepository", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Deployments().OfRepository(ctx, tenant, w.repo.ID)
	}},
	{"Deployments.OfEnvironment", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Deployments().OfEnvironment(ctx, tenant, w.env.ID)
	}},
	{"Deployments.SetRendered", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Deployments().SetRendered(ctx, tenant, w.deployment.ID, fleet.Rendered{Commit: "new", At: at(50)})
	}},
	{"Deployments.SetSourceError", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Deployments().SetSourceError(ctx, tenant, w.deployment.ID, "broken", at(50))
	}},
	{"Deployments.MarkDeleted", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Deployments().MarkDeleted(ctx, tenant, w.deployment.ID, at(50))
	}},
	{"Deployments.Remove", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Deployments().Remove(ctx, tenant, w.deployment.ID)
	}},
	{"Targets.Create", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		x := newTarget(w, w.deployment, w.agent)
		x.TenantID = tenant
		return nil, tx.Targets().Create(ctx, x)
	}},
	{"Targets.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().Get(ctx, tenant, w.target.ID)
	}},
	{"Targets.OfDeployment", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().OfDeployment(ctx, tenant, w.deployment.ID)
	}},
	{"Targets.OfAgent", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().OfAgent(ctx, tenant, w.agent.ID)
	}},
	{"Targets.ListByDeployments", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().ListByDeployments(ctx, tenant, []fleet.DeploymentID{w.deployment.ID})
	}},
	{"Targets.CountByAgent", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Targets().CountByAgent(ctx, tenant)
	}},
	{"Targets.SetDesired", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Targets().SetDesired(ctx, tenant, w.target.ID, fleet.Desired{Version: fleet.Version{Generation: 99}})
	}},
	{"Targets.SetObserved", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Targets().SetObserved(ctx, tenant, w.agent.ID, store.Report{
			Target: w.target.ID, Full: true, Observed: fleet.Observed{Version: fleet.Version{Epoch: 9}}})
	}},
	{"Targets.Objects", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().Objects(ctx, tenant, w.target.ID)
	}},
	{"Targets.Remove", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Targets().Remove(ctx, tenant, w.target.ID)
	}},
	{"Bundles.Put", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Bundles().Put(ctx, newBundle(tenant, "new"))
	}},
	{"Bundles.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Bundles().Get(ctx, tenant, w.bundle.Digest)
	}},
	{"Bundles.DeleteUnused", true, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Bundles().DeleteUnused(ctx, tenant, time.Now().Add(time.Hour))
	}},
	{"Events.Append", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		e := w.event
		e.TenantID = tenant
		return nil, tx.Events().Append(ctx, e)
	}},
	{"Events.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Events().List(ctx, tenant, store.EventFilter{})
	}},
	{"Events.Trim", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Events().Trim(ctx, 100)
	}},
	{"Changes.AfterAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Changes().AfterAllTenants(ctx, 0, 10)
	}},
	{"Changes.After", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Changes().After(ctx, tenant, 0, 10)
	}},
	{"Changes.Last", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Changes().Last(ctx)
	}},
	{"Changes.First", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Changes().First(ctx)
	}},
	{"Changes.Trim", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Changes().Trim(ctx, 100)
	}},
}
