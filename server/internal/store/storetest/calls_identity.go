package storetest

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// identityCalls are the calls about tenants, people, agents, and tokens.
var identityCalls = []call{
	{"Settings.Get", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Settings().Get(ctx)
	}},
	{"Settings.SetSuspension", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Settings().SetSuspension(ctx, fleet.Suspension{At: at(50), By: "me", Reason: "holidays"})
	}},
	{"Settings.SetEpoch", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Settings().SetEpoch(ctx, 7)
	}},
	{"Tenants.Create", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Tenants().Create(ctx, fleet.Tenant{ID: fleet.NewTenantID(), Name: "new", CreatedAt: at(1)})
	}},
	{"Tenants.Get", false, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Tenants().Get(ctx, tenant)
	}},
	{"Tenants.ByName", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Tenants().ByName(ctx, w.tenant.Name)
	}},
	{"Tenants.List", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Tenants().List(ctx, store.Page{})
	}},
	{"Tenants.SetQuota", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Tenants().SetQuota(ctx, tenant, fleet.Quota{Agents: 9})
	}},
	{"Tenants.SetSuspension", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Tenants().SetSuspension(ctx, tenant, fleet.Suspension{At: at(50)})
	}},
	{"Tenants.Delete", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Tenants().Delete(ctx, tenant)
	}},
	{"Members.Put", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		m := w.member
		m.TenantID, m.Role = tenant, fleet.RoleAdmin
		return nil, tx.Members().Put(ctx, m)
	}},
	{"Members.Remove", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Members().Remove(ctx, tenant, w.member.Kind, w.member.Subject)
	}},
	{"Members.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Members().List(ctx, tenant, store.Page{})
	}},
	{"Members.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Members().Get(ctx, tenant, w.member.Kind, w.member.Subject)
	}},
	{"Members.OfAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Members().OfAllTenants(ctx, w.member.Subject, nil)
	}},
	{"People.Bind", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return nil, tx.People().Bind(ctx, newPerson("new", "1"))
	}},
	{"People.LoggedIn", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return nil, tx.People().LoggedIn(ctx, w.person.Name, "Ada", at(50))
	}},
	{"People.ByName", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.People().ByName(ctx, w.person.Name, at(0))
	}},
	{"People.List", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.People().List(ctx, at(0), store.Page{})
	}},
	{"People.Forget", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return nil, tx.People().Forget(ctx, w.person.Name)
	}},
	{"Agents.Create", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Agents().Create(ctx, newAgent(tenant, "new"))
	}},
	{"Agents.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Agents().Get(ctx, tenant, w.agent.ID)
	}},
	{"Agents.SpecRevision", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Agents().SpecRevision(ctx, tenant, w.agent.ID)
	}},
	{"Agents.ByName", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Agents().ByName(ctx, tenant, w.agent.Name)
	}},
	{"Agents.Brief", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Agents().Brief(ctx, tenant, w.agent.Name)
	}},
	{"Agents.Of", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Agents().Of(ctx, tenant, []fleet.AgentID{w.agent.ID})
	}},
	{"Agents.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Agents().List(ctx, tenant, store.AgentFilter{})
	}},
	{"Agents.Update", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		a := w.agent
		a.TenantID, a.Labels = tenant, nil
		return nil, tx.Agents().Update(ctx, a)
	}},
	{"Agents.Delete", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Agents().Delete(ctx, tenant, w.agent.ID)
	}},
	{"Agents.SetUninstalling", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Agents().SetUninstalling(ctx, tenant, w.agent.ID)
	}},
	{"Agents.SetApplications", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Agents().SetApplications(ctx, tenant, w.agent.ID, fleet.ForeignApplications{Items: []fleet.ForeignApplication{{Name: "shop"}}, Total: 1})
	}},
	{"Agents.Applications", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Agents().Applications(ctx, tenant, w.agent.ID)
	}},
	{"Agents.SetCapabilities", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Agents().SetCapabilities(ctx, tenant, w.agent.ID, fleet.Capabilities{KubeVersion: "v1.36.3"})
	}},
	{"Agents.Capabilities", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Agents().Capabilities(ctx, tenant, w.agent.Capabilities)
	}},
	{"Agents.Count", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Agents().Count(ctx, tenant)
	}},
	{"Connections.Put", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		c := newConnection(w.agent, w.connection.Replica)
		c.TenantID = tenant
		return nil, tx.Connections().Put(ctx, c)
	}},
	{"Connections.Close", true, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Connections().Close(ctx, tenant, w.connection.SessionID, at(50), at(51))
	}},
	{"Connections.CloseOfServerAllTenants", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Connections().CloseOfServerAllTenants(ctx, "", at(50))
	}},
	{"Connections.Trim", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Connections().Trim(ctx, tenant, at(1000))
	}},
	{"Connections.OfAgentsAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Connections().OfAgentsAllTenants(ctx, []fleet.AgentID{w.agent.ID})
	}},
	{"Replicas.Beat", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Replicas().Beat(ctx, newReplica("srv-new", 50))
	}},
	{"Replicas.List", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Replicas().List(ctx)
	}},
	{"Replicas.Remove", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Replicas().Remove(ctx, "srv-new")
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
		return tx.Tokens().AgentTokens(ctx, tenant, w.agent.ID, store.Page{})
	}},
	{"Tokens.RevokeAgentToken", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Tokens().RevokeAgentToken(ctx, tenant, w.token.ID, at(50))
	}},
	{"Tokens.TouchAgentToken", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Tokens().TouchAgentToken(ctx, tenant, w.token.ID, at(50))
	}},
	{"Tokens.CreateAPIToken", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Tokens().CreateAPIToken(ctx, newAPIToken(tenant, "new"))
	}},
	{"Tokens.APITokenByHash", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Tokens().APITokenByHash(ctx, w.apiToken.Hash)
	}},
	{"Tokens.APITokens", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Tokens().APITokens(ctx, tenant, store.Page{})
	}},
	{"Tokens.APIToken", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Tokens().APIToken(ctx, tenant, w.apiToken.ID)
	}},
	{"Tokens.RevokeAPIToken", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Tokens().RevokeAPIToken(ctx, tenant, w.apiToken.ID, at(50))
	}},
	{"Tokens.RevokeSessions", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Tokens().RevokeSessions(ctx, "nobody", at(50))
	}},
	{"Tokens.CountAPITokens", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Tokens().CountAPITokens(ctx, tenant)
	}},
	{"Tokens.TrimAPITokens", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Tokens().TrimAPITokens(ctx, at(0))
	}},
}
