package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var agentTests = map[string]func(*testing.T, store.Store){
	"store labels and namespaces": agentsKeepWhatTheyAre,
	"have unique names":           agentNamesAreUnique,
	"are listed page by page":     agentsArePaged,
	"are filtered":                agentsAreFiltered,
	"are edited":                  agentsAreEdited,
	"are deleted with their rows": agentDeletionCascades,
	"share capabilities":          agentsShareCapabilities,
	"list foreign Applications":   agentsListApplications,
}

func agentsKeepWhatTheyAre(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	plain := fleet.Agent{ID: fleet.NewAgentID(), TenantID: w.tenant.ID, Name: "plain", Scope: fleet.ScopeCluster, SpecRevision: 1, CreatedAt: at(1)}
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
	for _, c := range []struct {
		reason string
		ids    []fleet.AgentID
		want   []fleet.Agent
	}{
		{"each once, by name", []fleet.AgentID{plain.ID, w.agent.ID, plain.ID}, []fleet.Agent{w.agent, plain}},
		{"a missing one is omitted", []fleet.AgentID{"agt-nobody", plain.ID}, []fleet.Agent{plain}},
		{"none is none", nil, nil},
	} {
		same(t, c.reason, read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Agent, error) {
			return tx.Agents().Of(ctx, w.tenant.ID, c.ids)
		}), c.want)
	}
}

func agentsListApplications(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	shop := fleet.ForeignApplication{
		Name: "shop", Project: "theirs", RepoURL: "https://git.example.com/shop.git", Path: "shop", Revision: "main",
		Cluster: "https://kubernetes.default.svc", Namespace: "shop", Sync: "Synced", Health: "Healthy",
	}
	moved, web := shop, fleet.ForeignApplication{Name: "web"}
	moved.Sync = "OutOfSync"
	for _, step := range []struct {
		reason string
		list   fleet.ForeignApplications
	}{
		{"the first", fleet.ForeignApplications{Items: []fleet.ForeignApplication{shop}, Total: 1}},
		{"one changes, and there are more than are listed", fleet.ForeignApplications{Items: []fleet.ForeignApplication{moved, web}, Total: 3}},
		{"the same again", fleet.ForeignApplications{Items: []fleet.ForeignApplication{moved, web}, Total: 3}},
		{"one is gone", fleet.ForeignApplications{Items: []fleet.ForeignApplication{web}, Total: 1}},
		{"none is left", fleet.ForeignApplications{}},
	} {
		before := last(t, s)
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			return tx.Agents().SetApplications(ctx, w.tenant.ID, w.agent.ID, step.list)
		})
		same(t, step.reason+": changes", since(t, s, before), nil)
		same(t, step.reason, read(t, s, func(ctx context.Context, tx store.Tx) (fleet.ForeignApplications, error) {
			return tx.Agents().Applications(ctx, w.tenant.ID, w.agent.ID)
		}), step.list)
	}
}

func agentsShareCapabilities(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	second := newAgent(w.tenant.ID, "edge-2")
	other := fleet.Capabilities{KubeVersion: "v1.37.0"}
	set := func(a fleet.Agent, c fleet.Capabilities) func(context.Context, store.Tx) error {
		return func(ctx context.Context, tx store.Tx) error {
			return tx.Agents().SetCapabilities(ctx, w.tenant.ID, a.ID, c)
		}
	}
	known := func(ctx context.Context, tx store.Tx) (fleet.Capabilities, error) {
		return tx.Agents().Capabilities(ctx, w.tenant.ID, capabilities.Hash())
	}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Create(ctx, second) })
	record := func(a fleet.Agent) []store.Change {
		return []store.Change{{TenantID: w.tenant.ID, Kind: store.ChangeAgent, ID: string(a.ID), AgentID: a.ID}}
	}
	for _, step := range []struct {
		reason  string
		do      func(context.Context, store.Tx) error
		there   bool
		changes []store.Change
	}{
		{"another agent reports the same", set(second, capabilities), true, record(second)},
		{"the same again is no change", set(second, capabilities), true, nil},
		{"one has others", set(w.agent, other), true, record(w.agent)},
		{"no agent has them any more", set(second, fleet.Capabilities{}), false, record(second)},
	} {
		before := last(t, s)
		update(t, s, step.do)
		same(t, step.reason+": changes", since(t, s, before), step.changes)
		if step.there {
			same(t, step.reason, read(t, s, known), capabilities)
		} else {
			missing(t, s, known)
		}
	}
	got := read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Agent, error) {
		return tx.Agents().Get(ctx, w.tenant.ID, w.agent.ID)
	})
	if got.Capabilities != other.Hash() || got.SpecRevision != w.agent.SpecRevision {
		t.Errorf("the agent is %+v", got)
	}
	refuse(t, s, store.ErrNotFound, set(newAgent(w.tenant.ID, "x"), other))
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
		return listAgents(t, s, tenant.ID, store.AgentFilter{Page: page})
	}
	same(t, "everything", list(store.Page{}), want)
	same(t, "first page", list(store.Page{Limit: 3}), want[:3])
	same(t, "second page", list(store.Page{After: want[2].Name, Limit: 3}), want[3:6])
	same(t, "last page", list(store.Page{After: want[5].Name, Limit: 3}), want[6:])
	same(t, "after the end", list(store.Page{After: want[6].Name, Limit: 3}), nil)
	same(t, "after a deleted name", list(store.Page{After: "aa", Limit: 1}), want[3:4])
}

func listAgents(t *testing.T, s store.Store, tenant fleet.TenantID, f store.AgentFilter) []fleet.Agent {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Agent, error) { return tx.Agents().List(ctx, tenant, f) })
}

func agentsAreFiltered(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	away, plain := newAgent(w.tenant.ID, "edge-2"), newAgent(w.tenant.ID, "UPPER_10%")
	away.Labels["region"], plain.Labels = "us", nil
	gone := newConnection(away, "pod-0")
	gone.DisconnectedAt = at(9)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Agents().Create(ctx, away), tx.Agents().Create(ctx, plain), tx.Connections().Put(ctx, gone))
	})
	yes, no := true, false
	cases := []struct {
		reason string
		filter store.AgentFilter
		want   []string
	}{
		{"everything", store.AgentFilter{}, []string{"UPPER_10%", "edge-1", "edge-2"}},
		{"connected", store.AgentFilter{Connected: &yes}, []string{"edge-1"}},
		{"not connected", store.AgentFilter{Connected: &no}, []string{"UPPER_10%", "edge-2"}},
		{"one label", store.AgentFilter{Labels: map[string]string{"tier": ""}}, []string{"edge-1", "edge-2"}},
		{"two labels", store.AgentFilter{Labels: map[string]string{"tier": "", "region": "us"}}, []string{"edge-2"}},
		{"a label that no agent has", store.AgentFilter{Labels: map[string]string{"region": "eu", "tier": "x"}}, nil},
		{"a label in a set", store.AgentFilter{Selector: fleet.LabelSelector{{Key: "region", Operator: fleet.LabelIn, Values: []string{"us", "ap"}}}}, []string{"edge-2"}},
		{"a label not in a set, or absent", store.AgentFilter{Selector: fleet.LabelSelector{{Key: "region", Operator: fleet.LabelNotIn, Values: []string{"us"}}}}, []string{"UPPER_10%", "edge-1"}},
		{"a label that exists", store.AgentFilter{Selector: fleet.LabelSelector{{Key: "tier", Operator: fleet.LabelExists}}}, []string{"edge-1", "edge-2"}},
		{"a label that does not exist", store.AgentFilter{Selector: fleet.LabelSelector{{Key: "tier", Operator: fleet.LabelDoesNotExist}}}, []string{"UPPER_10%"}},
		{"two requirements on one label", store.AgentFilter{Selector: fleet.LabelSelector{
			{Key: "region", Operator: fleet.LabelIn, Values: []string{"us", "eu"}}, {Key: "region", Operator: fleet.LabelNotIn, Values: []string{"us"}},
			{Key: "tier", Operator: fleet.LabelIn, Values: []string{""}},
		}}, []string{"edge-1"}},
		{"part of the name", store.AgentFilter{Text: "DGE-"}, []string{"edge-1", "edge-2"}},
		{"pattern characters", store.AgentFilter{Text: "r_10%"}, []string{"UPPER_10%"}},
		{"which is not special here", store.AgentFilter{Text: "e%1"}, nil},
		{"all at once, page by page", store.AgentFilter{Text: "edge", Connected: &no, Page: store.Page{After: "edge-1", Limit: 1}}, []string{"edge-2"}},
	}
	for _, c := range cases {
		var got []string
		for _, a := range listAgents(t, s, w.tenant.ID, c.filter) {
			got = append(got, a.Name)
		}
		same(t, c.reason, got, c.want)
	}
	same(t, "count", read(t, s, func(ctx context.Context, tx store.Tx) (int, error) { return tx.Agents().Count(ctx, w.tenant.ID) }), 3)
}

func agentsAreEdited(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	want := w.agent
	before := last(t, s)
	want.Labels, want.Scope, want.Namespaces, want.SpecRevision = map[string]string{"tier": "db"}, fleet.ScopeCluster, nil, 1
	want.Kinds, want.KindsFromConfig = fleet.KindFilter{Exclude: []string{"Secret"}}, false
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Update(ctx, want) })
	want.SpecRevision = 2
	get := func(ctx context.Context, tx store.Tx) (fleet.Agent, error) {
		return tx.Agents().Get(ctx, w.tenant.ID, want.ID)
	}
	same(t, "agent", read(t, s, get), want)
	same(t, "revision", read(t, s, func(ctx context.Context, tx store.Tx) (int64, error) {
		return tx.Agents().SpecRevision(ctx, w.tenant.ID, want.ID)
	}), want.SpecRevision)
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeAgent, ID: string(want.ID), AgentID: want.ID}})
	missing := newAgent(w.tenant.ID, "x")
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Update(ctx, missing) })
}

// agentDeletionCascades checks what is deleted with an agent, and that its targets, which may belong to another
// tenant, only lose it.
func agentDeletionCascades(t *testing.T, s store.Store) {
	w, other := newWorld(t, s, "a"), newWorld(t, s, "b")
	granted := grantedTarget(t, s, w)
	otherBefore, before := dump(t, s, other), last(t, s)
	second := newAgent(w.tenant.ID, "edge-2")
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Create(ctx, second) })
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Delete(ctx, w.tenant.ID, w.agent.ID) })

	after := dump(t, s, w)
	for _, name := range []string{"connections", "tokens", "connected agents"} {
		if got := fmt.Sprint(after[name]); got != "[]" {
			t.Errorf("%s of a deleted agent: got %s, want none", name, got)
		}
	}
	orphan := w.target
	orphan.AgentID = ""
	same(t, "agents", after["agents"].([]fleet.Agent), []fleet.Agent{second})
	same(t, "deployments", after["deployments"].([]fleet.Deployment), []fleet.Deployment{w.deployment})
	same(t, "targets", after["targets"].([]fleet.Target), []fleet.Target{orphan})
	same(t, "the other tenant", dump(t, s, other), otherBefore)
	granted.AgentID = ""
	same(t, "the guest's target", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Target, error) {
		return tx.Targets().Get(ctx, w.guest.ID, granted.ID)
	}), granted)
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.AgentToken, error) {
		return tx.Tokens().AgentTokenByHashAllTenants(ctx, w.token.Hash)
	})
	tenant, id := w.tenant.ID, w.agent.ID
	want := []store.Change{
		{TenantID: tenant, Kind: store.ChangeAgent, ID: string(second.ID), AgentID: second.ID},
		{TenantID: tenant, Kind: store.ChangeToken, ID: string(w.token.ID), AgentID: id},
		{TenantID: tenant, Kind: store.ChangeDesired, ID: string(w.target.ID), AgentID: id, DeploymentID: w.deployment.ID},
		{TenantID: w.guest.ID, Kind: store.ChangeDesired, ID: string(granted.ID), AgentID: id, DeploymentID: granted.DeploymentID},
		{TenantID: tenant, Kind: store.ChangeAccessRule, ID: string(w.access.ID)},
		{TenantID: tenant, Kind: store.ChangeAgent, ID: string(id), AgentID: id},
	}
	if w.guest.ID < tenant {
		want[2], want[3] = want[3], want[2]
	}
	same(t, "changes", since(t, s, before), want)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Agents().Create(ctx, newAgent(w.tenant.ID, w.agent.Name))
	})
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.Agents().Delete(ctx, w.tenant.ID, w.agent.ID)
	})
}
