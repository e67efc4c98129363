package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var accessRuleTests = map[string]func(*testing.T, store.Store){
	"are edited and deleted":                  accessRulesAreEdited,
	"lose agents and environments":            accessRulesLoseWhatIsDeleted,
	"cover agents":                            accessRulesCoverAgents,
	"cover what an environment selects":       accessRulesCoverEnvironments,
	"are found by subject":                    accessRulesAreFoundBySubject,
	"lose a person":                           accessRulesLoseAPerson,
	"refer to the agents of their tenant":     accessRulesStayInTheirTenant,
	"leave with their tenant and not without": accessRulesLeaveWithTheTenant,
}

func newAccessRule(w *world, name string) fleet.AccessRule {
	return fleet.AccessRule{
		ID: fleet.NewAccessRuleID(), TenantID: w.tenant.ID, Name: name, SpecRevision: 1, CreatedAt: at(4), ReadOnly: true,
		Subjects: []fleet.AccessSubject{
			{Kind: fleet.AccessGroup, Name: "on-call"}, {Kind: fleet.AccessPerson, Name: "ada"}, {Kind: fleet.AccessToken, Name: "ci"},
		},
		Agents:       []fleet.AccessAgent{{ID: w.agent.ID, Name: w.agent.Name}},
		Environments: []fleet.AccessEnvironment{{ID: w.env.ID, Name: w.env.Name}},
	}
}

func createRule(t *testing.T, s store.Store, r fleet.AccessRule) {
	t.Helper()
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.AccessRules().Create(ctx, r) })
}

func getRule(t *testing.T, s store.Store, r fleet.AccessRule) fleet.AccessRule {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (fleet.AccessRule, error) {
		return tx.AccessRules().ByName(ctx, r.TenantID, r.Name)
	})
}

// covering returns the names of the rules that let a caller reach an agent.
func covering(t *testing.T, s store.Store, a fleet.Agent, who fleet.AccessSubject, groups ...string) []string {
	t.Helper()
	var out []string
	for _, m := range read(t, s, func(ctx context.Context, tx store.Tx) ([]store.AccessMatch, error) {
		return tx.AccessRules().Covering(ctx, a.TenantID, a.ID, who, groups)
	}) {
		out = append(out, m.Name)
	}
	return out
}

func accessRulesAreEdited(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	same(t, "created", getRule(t, s, w.access), w.access)
	refuse(t, s, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.AccessRules().Create(ctx, newAccessRule(w, w.access.Name))
	})
	first := newAccessRule(w, "another")
	createRule(t, s, first)
	list := func(page store.Page) []fleet.AccessRule {
		return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.AccessRule, error) {
			return tx.AccessRules().List(ctx, w.tenant.ID, page)
		})
	}
	same(t, "listed", list(store.Page{}), []fleet.AccessRule{first, w.access})
	same(t, "a page", list(store.Page{After: first.Name, Limit: 1}), []fleet.AccessRule{w.access})
	same(t, "counted", read(t, s, func(ctx context.Context, tx store.Tx) (int, error) { return tx.AccessRules().Count(ctx, w.tenant.ID) }), 2)
	before := last(t, s)
	want := w.access
	want.AllAgents, want.ReadOnly, want.Agents, want.Environments, want.SpecRevision = true, false, nil, nil, 2
	want.Subjects = []fleet.AccessSubject{{Kind: fleet.AccessPerson, Name: "bob"}}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.AccessRules().Update(ctx, want) })
	same(t, "edited", getRule(t, s, want), want)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.AccessRules().Delete(ctx, w.tenant.ID, want.ID)
	})
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.AccessRule, error) {
		return tx.AccessRules().ByName(ctx, w.tenant.ID, want.Name)
	})
	change := store.Change{TenantID: w.tenant.ID, Kind: store.ChangeAccessRule, ID: string(want.ID)}
	same(t, "changes", since(t, s, before), []store.Change{change, change})
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.AccessRules().Delete(ctx, w.tenant.ID, want.ID)
	})
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error { return tx.AccessRules().Update(ctx, want) })
}

// accessRulesLoseWhatIsDeleted deletes everything that a rule covers: it must not cover other agents then, and an agent
// with the name of a deleted one is another one.
func accessRulesLoseWhatIsDeleted(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	env := fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: w.tenant.ID, Name: "unused", MatchLabels: map[string]string{"region": "eu"}, CreatedAt: at(1)}
	agent := newAgent(w.tenant.ID, "edge-2")
	rule := newAccessRule(w, "rule")
	rule.Agents = []fleet.AccessAgent{{ID: agent.ID, Name: agent.Name}}
	rule.Environments = []fleet.AccessEnvironment{{ID: env.ID, Name: env.Name}}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Agents().Create(ctx, agent), tx.Environments().Create(ctx, env), tx.AccessRules().Create(ctx, rule))
	})
	ada := fleet.AccessSubject{Kind: fleet.AccessPerson, Name: "ada"}
	same(t, "before", covering(t, s, agent, ada), []string{"rule", "work"})
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Delete(ctx, w.tenant.ID, agent.ID) })
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Environments().Delete(ctx, w.tenant.ID, env.ID)
	})
	rule.Agents, rule.Environments, rule.SpecRevision = nil, nil, 3
	same(t, "after", getRule(t, s, rule), rule)
	change := store.Change{TenantID: w.tenant.ID, Kind: store.ChangeAccessRule, ID: string(rule.ID)}
	if all := since(t, s, before); !slices.Contains(all, change) {
		t.Errorf("the change of the rule is not recorded: %v", all)
	}
	again := newAgent(w.tenant.ID, "edge-2")
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Create(ctx, again) })
	same(t, "for an agent with the same name", covering(t, s, again, ada), []string{"work"}) // its environment selects the name
	w.access.Environments = nil
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.AccessRules().Update(ctx, w.access) })
	same(t, "without environments", covering(t, s, again, ada), nil)
}

func accessRulesCoverAgents(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	other := newAgent(w.tenant.ID, "other")
	other.Labels = nil
	by := newAccessRule(w, "by-name")
	by.Environments = nil
	all := newAccessRule(w, "everything")
	all.AllAgents, all.Agents, all.Environments, all.ReadOnly = true, nil, nil, false
	none := newAccessRule(w, "nothing")
	none.Agents, none.Environments = nil, nil
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Agents().Create(ctx, other), tx.AccessRules().Delete(ctx, w.tenant.ID, w.access.ID),
			tx.AccessRules().Create(ctx, by), tx.AccessRules().Create(ctx, all), tx.AccessRules().Create(ctx, none))
	})
	ci := fleet.AccessSubject{Kind: fleet.AccessToken, Name: "ci"}
	same(t, "the agent", covering(t, s, w.agent, ci), []string{"by-name", "everything"})
	same(t, "another one", covering(t, s, other, ci), []string{"everything"})
	same(t, "the match", read(t, s, func(ctx context.Context, tx store.Tx) ([]store.AccessMatch, error) {
		return tx.AccessRules().Covering(ctx, w.tenant.ID, w.agent.ID, ci, nil)
	}), []store.AccessMatch{
		{TenantID: w.tenant.ID, ID: by.ID, Name: by.Name, ReadOnly: true}, {TenantID: w.tenant.ID, ID: all.ID, Name: all.Name},
	})
	same(t, "an agent that is gone", covering(t, s, newAgent(w.tenant.ID, "gone"), ci), nil)
	brief := other
	brief.Namespaces = nil
	same(t, "brief", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Agent, error) {
		return tx.Agents().Brief(ctx, w.tenant.ID, other.Name)
	}), brief)
}

// accessRulesCoverEnvironments compares the query with [fleet.Environment.Selects].
func accessRulesCoverEnvironments(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	agents := map[string]fleet.Agent{}
	for name, labels := range map[string]map[string]string{
		"plain": nil, "eu": {"region": "eu"}, "eu-prod": {"region": "eu", "tier": "prod"}, "us": {"region": "us", "tier": "prod"}, "leaving": {"region": "eu", "tier": "prod"},
	} {
		a := newAgent(w.tenant.ID, name)
		a.Labels = labels
		agents[name] = a
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Create(ctx, a) })
	}
	leaving := agents["leaving"]
	leaving.Uninstalling = true
	agents["leaving"] = leaving
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Agents().SetUninstalling(ctx, w.tenant.ID, leaving.ID)
	})
	push := &fleet.Push{APIURL: "https://api.example.com", Instance: agents["eu"].ID}
	for name, e := range map[string]fleet.Environment{
		"all":   {},
		"named": {Agents: []string{"plain", "us"}},
		"label": {MatchLabels: map[string]string{"region": "eu"}},
		"two":   {MatchLabels: map[string]string{"region": "eu", "tier": "prod"}},
		"both":  {Agents: []string{"us"}, MatchLabels: map[string]string{"region": "eu", "tier": "prod"}},
		"none":  {Agents: []string{"absent"}},
		"push":  {Push: push},
	} {
		e.ID, e.TenantID, e.Name, e.CreatedAt = fleet.NewEnvironmentID(), w.tenant.ID, name, at(1)
		rule := newAccessRule(w, "env-"+name)
		rule.Subjects = []fleet.AccessSubject{{Kind: fleet.AccessPerson, Name: name}}
		rule.Agents, rule.Environments = nil, []fleet.AccessEnvironment{{ID: e.ID, Name: e.Name}}
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			return errors.Join(tx.Environments().Create(ctx, e), tx.AccessRules().Create(ctx, rule))
		})
		for _, a := range agents {
			want := e.Push == nil && e.Selects(a)
			if got := len(covering(t, s, a, rule.Subjects[0])) == 1; got != want {
				t.Errorf("environment %q and agent %q: got %v, want %v", name, a.Name, got, want)
			}
		}
	}
}

func accessRulesAreFoundBySubject(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	b := newWorld(t, s, "b") // with the same names
	rule := newAccessRule(w, "guests")
	rule.Subjects = []fleet.AccessSubject{{Kind: fleet.AccessGroup, Name: "guests"}, {Kind: fleet.AccessPerson, Name: "on-call"}}
	createRule(t, s, rule)
	cases := []struct {
		reason string
		who    fleet.AccessSubject
		groups []string
		want   []string
	}{
		{"a token", fleet.AccessSubject{Kind: fleet.AccessToken, Name: "ci"}, nil, []string{"work"}},
		{"a person with the name of a token", fleet.AccessSubject{Kind: fleet.AccessPerson, Name: "ci"}, nil, nil},
		{"a token with the name of a person", fleet.AccessSubject{Kind: fleet.AccessToken, Name: "ada"}, nil, nil},
		{"a person with the name of a group", fleet.AccessSubject{Kind: fleet.AccessPerson, Name: "guests"}, nil, nil},
		{"a person by group", fleet.AccessSubject{Kind: fleet.AccessPerson, Name: "eve"}, []string{"x", "guests"}, []string{"guests"}},
		{"both ways", fleet.AccessSubject{Kind: fleet.AccessPerson, Name: "ada"}, []string{"guests", "on-call"}, []string{"guests", "work"}},
		{"a group with the name of a person", fleet.AccessSubject{Kind: fleet.AccessPerson, Name: "eve"}, []string{"ada"}, nil},
	}
	for _, c := range cases {
		same(t, c.reason, covering(t, s, w.agent, c.who, c.groups...), c.want)
	}
	foreign := w.agent
	foreign.TenantID = b.tenant.ID
	same(t, "the rule of another tenant", covering(t, s, foreign, fleet.AccessSubject{Kind: fleet.AccessToken, Name: "ci"}, "on-call"), nil)
}

func accessRulesLoseAPerson(t *testing.T, s store.Store) {
	a, b := newWorld(t, s, "a"), newWorld(t, s, "b")
	found := read(t, s, func(ctx context.Context, tx store.Tx) ([]store.AccessMatch, error) {
		return tx.AccessRules().OfPersonAllTenants(ctx, "ada")
	})
	if len(found) != 2 {
		t.Fatalf("got %v, want the rules of both tenants", found)
	}
	ada := fleet.AccessSubject{Kind: fleet.AccessPerson, Name: "ada"}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.AccessRules().RemoveSubject(ctx, a.tenant.ID, a.access.ID, ada)
	})
	want := a.access
	want.SpecRevision, want.Subjects = 2, []fleet.AccessSubject{a.access.Subjects[0], a.access.Subjects[2]}
	same(t, "the rule", getRule(t, s, want), want)
	same(t, "of the other tenant", getRule(t, s, b.access), b.access)
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.AccessRules().RemoveSubject(ctx, a.tenant.ID, a.access.ID, ada)
	})
}

func accessRulesStayInTheirTenant(t *testing.T, s store.Store) {
	a, b := newWorld(t, s, "a"), newWorld(t, s, "b")
	for name, change := range map[string]func(*fleet.AccessRule){
		"agent":       func(r *fleet.AccessRule) { r.Agents = []fleet.AccessAgent{{ID: b.agent.ID}} },
		"environment": func(r *fleet.AccessRule) { r.Environments = []fleet.AccessEnvironment{{ID: b.env.ID}} },
	} {
		rule := newAccessRule(a, "foreign")
		change(&rule)
		if err := s.Update(t.Context(), func(tx store.Tx) error { return tx.AccessRules().Create(t.Context(), rule) }); err == nil {
			t.Errorf("a rule has the %s of another tenant", name)
		}
	}
}

func accessRulesLeaveWithTheTenant(t *testing.T, s store.Store) {
	id := newTenant(t, s, "short-lived")
	createRule(t, s, fleet.AccessRule{ID: fleet.NewAccessRuleID(), TenantID: id, Name: "r", AllAgents: true, CreatedAt: at(1)})
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Tenants().Delete(ctx, id) })
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.AccessRule, error) {
		return tx.AccessRules().ByName(ctx, id, "r")
	})
}

// accessRuleCalls are the calls about access rules.
var accessRuleCalls = []call{
	{"AccessRules.Create", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.AccessRules().Create(ctx, fleet.AccessRule{ID: fleet.NewAccessRuleID(), TenantID: tenant, Name: "new", CreatedAt: at(1)})
	}},
	{"AccessRules.ByName", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.AccessRules().ByName(ctx, tenant, w.access.Name)
	}},
	{"AccessRules.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.AccessRules().List(ctx, tenant, store.Page{})
	}},
	{"AccessRules.Update", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		r := w.access
		r.TenantID, r.AllAgents = tenant, true
		return nil, tx.AccessRules().Update(ctx, r)
	}},
	{"AccessRules.Delete", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.AccessRules().Delete(ctx, tenant, w.access.ID)
	}},
	{"AccessRules.Count", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.AccessRules().Count(ctx, tenant)
	}},
	{"AccessRules.Covering", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.AccessRules().Covering(ctx, tenant, w.agent.ID, w.access.Subjects[1], []string{"on-call"})
	}},
	{"AccessRules.OfPersonAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.AccessRules().OfPersonAllTenants(ctx, "ada")
	}},
	{"AccessRules.RemoveSubject", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.AccessRules().RemoveSubject(ctx, tenant, w.access.ID, w.access.Subjects[1])
	}},
}
