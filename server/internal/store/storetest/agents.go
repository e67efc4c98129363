package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var agentTests = map[string]func(*testing.T, store.Store){
	"keep labels and namespaces": agentsKeepWhatTheyAre,
	"have unique names":          agentNamesAreUnique,
	"are listed page by page":    agentsArePaged,
	"take along what is theirs":  agentDeletionCascades,
}

func agentsKeepWhatTheyAre(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	plain := fleet.Agent{ID: fleet.NewAgentID(), TenantID: w.tenant.ID, Name: "plain", Scope: fleet.ScopeCluster, CreatedAt: at(1)}
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Create(ctx, plain) })
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeAgent, ID: string(plain.ID), AgentID: plain.ID}})
	for _, want := range []fleet.Agent{w.agent, plain} {
		same(t, "by id", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Agent, error) {
			return tx.Agents().Get(ctx, w.tenant.ID, want.ID)
		}), want)
		same(t, "by name", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Agent, error) {
			return tx.Agents().ByName(ctx, w.tenant.ID, want.Name)
		}), want)
	}
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Agent, error) {
		return tx.Agents().ByName(ctx, w.tenant.ID, "nobody")
	})
}

func agentNamesAreUnique(t *testing.T, s store.Store) {
	a, b := newWorld(t, s, "a"), newWorld(t, s, "b")
	refuse(t, s, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.Agents().Create(ctx, newAgent(a.tenant.ID, a.agent.Name))
	})
	if a.agent.Name != b.agent.Name {
		t.Fatal("two tenants should be able to use the same name")
	}
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.Agents().Create(ctx, newAgent("ten-nowhere", "x"))
	})
}

func agentsArePaged(t *testing.T, s store.Store) {
	tenant := fleet.Tenant{ID: fleet.NewTenantID(), Name: "a", CreatedAt: at(0)}
	var want []fleet.Agent
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.Tenants().Create(ctx, tenant); err != nil {
			return err
		}
		// "-" sorts before letters and digits: the order is that of bytes, not of a language.
		for _, name := range []string{"a", "a-b", "a0", "ab", "b", "b-1", "c"} {
			agent := newAgent(tenant.ID, name)
			agent.Labels["name"] = name
			want = append(want, agent)
		}
		for i := range want { // out of order
			if err := tx.Agents().Create(ctx, want[(i*3)%len(want)]); err != nil {
				return err
			}
		}
		return nil
	})
	list := func(page store.Page) []fleet.Agent {
		return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Agent, error) {
			return tx.Agents().List(ctx, tenant.ID, page)
		})
	}
	same(t, "everything", list(store.Page{}), want)
	same(t, "first page", list(store.Page{Limit: 3}), want[:3])
	same(t, "second page", list(store.Page{After: want[2].Name, Limit: 3}), want[3:6])
	same(t, "last page", list(store.Page{After: want[5].Name, Limit: 3}), want[6:])
	same(t, "after the end", list(store.Page{After: want[6].Name, Limit: 3}), nil)
	same(t, "after a name that is gone", list(store.Page{After: "aa", Limit: 1}), want[3:4])
}

func agentDeletionCascades(t *testing.T, s store.Store) {
	w, other := newWorld(t, s, "a"), newWorld(t, s, "b")
	otherBefore, before := dump(t, s, other), last(t, s)
	second := newAgent(w.tenant.ID, "edge-2")
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Create(ctx, second) })
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Delete(ctx, w.tenant.ID, w.agent.ID) })

	after := dump(t, s, w)
	for _, name := range []string{"connections", "tokens", "targets", "objects"} {
		if got := fmt.Sprint(after[name]); got != "[]" {
			t.Errorf("%s of a deleted agent: got %s, want none", name, got)
		}
	}
	same(t, "agents", after["agents"].([]fleet.Agent), []fleet.Agent{second})
	same(t, "deployments", after["deployments"].([]fleet.Deployment), []fleet.Deployment{w.deployment})
	same(t, "the other tenant", dump(t, s, other), otherBefore)
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.AgentToken, error) {
		return tx.Tokens().AgentTokenByHashAllTenants(ctx, w.token.Hash)
	})
	tenant, id := w.tenant.ID, w.agent.ID
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: tenant, Kind: store.ChangeAgent, ID: string(second.ID), AgentID: second.ID},
		{TenantID: tenant, Kind: store.ChangeToken, ID: string(w.token.ID), AgentID: id},
		{TenantID: tenant, Kind: store.ChangeDesired, ID: string(w.target.ID), AgentID: id, DeploymentID: w.deployment.ID},
		{TenantID: tenant, Kind: store.ChangeAgent, ID: string(id), AgentID: id},
	})
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Agents().Create(ctx, newAgent(w.tenant.ID, w.agent.Name))
	})
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.Agents().Delete(ctx, w.tenant.ID, w.agent.ID)
	})
}
