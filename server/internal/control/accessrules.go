package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// CreateAccessRule creates a rule that lets subjects reach the clusters of agents through their tunnels.
func (s *Service) CreateAccessRule(ctx context.Context, p auth.Principal, tenant string, req CreateAccessRule) (fleet.AccessRule, error) {
	if err := fleet.CheckName("name", req.Name); err != nil {
		return fleet.AccessRule{}, err
	}
	var out fleet.AccessRule
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		n, err := tx.AccessRules().Count(ctx, t.ID)
		if err != nil {
			return err
		}
		if n >= fleet.MaxAccessRules {
			return fleet.Conflict("tenant %q has %d access rules, which is the maximum: name groups and environments in fewer rules", t.Name, n)
		}
		rule := fleet.AccessRule{ID: fleet.NewAccessRuleID(), TenantID: t.ID, Name: req.Name, SpecRevision: 1, CreatedAt: s.cfg.Now()}
		change := UpdateAccessRule{
			Subjects: &req.Subjects, AllAgents: &req.AllAgents, Agents: &req.Agents, Environments: &req.Environments, ReadOnly: &req.ReadOnly,
		}
		if err := change.apply(ctx, tx, t, &rule); err != nil {
			return err
		}
		if err := tx.AccessRules().Create(ctx, rule); err != nil {
			return fmt.Errorf("access rule %q: %w", req.Name, err)
		}
		if err := s.audit(ctx, tx, p, accessRuleEvent("access-rule.create", rule)); err != nil {
			return err
		}
		out, err = accessRuleByName(ctx, tx, t.ID, req.Name)
		return err
	})
	return out, err
}

// AccessRules lists the rules of a tenant, sorted by name.
func (s *Service) AccessRules(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]fleet.AccessRule, error) {
	var out []fleet.AccessRule
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out, err = tx.AccessRules().List(ctx, t.ID, page)
		return err
	})
	return out, err
}

// AccessRule returns one rule by name.
func (s *Service) AccessRule(ctx context.Context, p auth.Principal, tenant, name string) (fleet.AccessRule, error) {
	var out fleet.AccessRule
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out, err = accessRuleByName(ctx, tx, t.ID, name)
		return err
	})
	return out, err
}

func accessRuleByName(ctx context.Context, tx store.Tx, tenant fleet.TenantID, name string) (fleet.AccessRule, error) {
	r, err := tx.AccessRules().ByName(ctx, tenant, name)
	if err != nil {
		return fleet.AccessRule{}, fmt.Errorf("access rule %q: %w", name, err)
	}
	return r, nil
}

// UpdateAccessRule changes a rule. It applies to the next request of each caller.
func (s *Service) UpdateAccessRule(
	ctx context.Context, p auth.Principal, tenant, name string, req UpdateAccessRule, match Match,
) (fleet.AccessRule, error) {
	var out fleet.AccessRule
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		rule, err := accessRuleByName(ctx, tx, t.ID, name)
		if err != nil {
			return err
		}
		if err := match.check(string(rule.ID), rule.SpecRevision); err != nil {
			return err
		}
		was := rule
		if err := req.apply(ctx, tx, t, &rule); err != nil {
			return err
		}
		if out = was; sameAccess(was, rule) {
			return nil
		}
		if err := tx.AccessRules().Update(ctx, rule); err != nil {
			return err
		}
		if err := s.audit(ctx, tx, p, accessRuleEvent("access-rule.update", rule)); err != nil {
			return err
		}
		out, err = accessRuleByName(ctx, tx, t.ID, name)
		return err
	})
	return out, err
}

func sameAccess(a, b fleet.AccessRule) bool {
	return a.AllAgents == b.AllAgents && a.ReadOnly == b.ReadOnly && slices.Equal(a.Subjects, b.Subjects) &&
		slices.Equal(a.Agents, b.Agents) && slices.Equal(a.Environments, b.Environments)
}

// DeleteAccessRule deletes a rule. Its subjects lose the access that no other rule gives them.
func (s *Service) DeleteAccessRule(ctx context.Context, p auth.Principal, tenant, name string, match Match) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		rule, err := accessRuleByName(ctx, tx, t.ID, name)
		if err != nil {
			return err
		}
		if err := match.check(string(rule.ID), rule.SpecRevision); err != nil {
			return err
		}
		if err := tx.AccessRules().Delete(ctx, t.ID, rule.ID); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, accessRuleEvent("access-rule.delete", rule))
	})
}

// forgetAccess removes a person from all rules, so that the next person with the name does not inherit access.
func (s *Service) forgetAccess(ctx context.Context, tx store.Tx, p auth.Principal, person string) error {
	rules, err := tx.AccessRules().OfPersonAllTenants(ctx, person)
	if err != nil {
		return err
	}
	for _, r := range rules {
		if err := tx.AccessRules().RemoveSubject(ctx, r.TenantID, r.ID, fleet.AccessSubject{Kind: fleet.AccessPerson, Name: person}); err != nil {
			return err
		}
		e := accessRuleEvent("access-rule.update", fleet.AccessRule{ID: r.ID, TenantID: r.TenantID, Name: r.Name})
		e.Detail = fmt.Sprintf("without person %s, whose name was freed", person)
		if err := s.audit(ctx, tx, p, e); err != nil {
			return err
		}
	}
	return nil
}

// apply changes a rule as requested, and checks it.
func (u UpdateAccessRule) apply(ctx context.Context, tx store.Tx, t fleet.Tenant, r *fleet.AccessRule) error {
	if u.Subjects != nil {
		if err := checkAccessSubjects(*u.Subjects); err != nil {
			return err
		}
		r.Subjects = slices.Compact(slices.SortedFunc(slices.Values(*u.Subjects), compareSubjects))
	}
	if u.ReadOnly != nil {
		r.ReadOnly = *u.ReadOnly
	}
	if u.AllAgents != nil {
		r.AllAgents = *u.AllAgents
	}
	if u.Agents != nil {
		if err := setAccessAgents(ctx, tx, t, r, sorted(*u.Agents)); err != nil {
			return err
		}
	}
	if u.Environments != nil {
		if err := setAccessEnvironments(ctx, tx, t, r, sorted(*u.Environments)); err != nil {
			return err
		}
	}
	listed := len(r.Agents)+len(r.Environments) > 0
	switch {
	case r.AllAgents && listed:
		return fleet.Invalid("allAgents", "a rule for all agents lists neither agents nor environments")
	case !r.AllAgents && !listed && (u.AllAgents != nil || u.Agents != nil || u.Environments != nil):
		return fleet.Invalid("agents", "set agents, environments, or allAgents: otherwise the rule covers no agent")
	}
	return nil
}

func compareSubjects(a, b fleet.AccessSubject) int {
	return strings.Compare(string(a.Kind)+"/"+a.Name, string(b.Kind)+"/"+b.Name)
}

func checkAccessSubjects(subjects []fleet.AccessSubject) error {
	if len(subjects) == 0 || len(subjects) > fleet.MaxAccessEntries {
		return fleet.Invalid("subjects", "a rule has between 1 and %d subjects; use groups for more people", fleet.MaxAccessEntries)
	}
	for _, x := range subjects {
		switch x.Kind {
		case fleet.AccessToken:
			if err := fleet.CheckName("subjects", strings.TrimPrefix(x.Name, fleet.FleetTokenPrefix)); err != nil {
				return err
			}
		case fleet.AccessPerson, fleet.AccessGroup:
			if x.Name == "" || len(x.Name) > maxSubject || strings.ContainsFunc(x.Name, unprintable) {
				return fleet.Invalid("subjects", "the name of a %s has between 1 and %d characters that can be printed", x.Kind, maxSubject)
			}
		default:
			return fleet.Invalid("subjects", "%q is not a kind of subject: use %s, %s, or %s", x.Kind, fleet.AccessToken, fleet.AccessPerson, fleet.AccessGroup)
		}
	}
	return nil
}

func setAccessAgents(ctx context.Context, tx store.Tx, t fleet.Tenant, r *fleet.AccessRule, names []string) error {
	if len(names) > fleet.MaxAccessEntries {
		return fleet.Invalid("agents", "a rule has at most %d agents: use environments, or allAgents", fleet.MaxAccessEntries)
	}
	r.Agents = nil
	for _, name := range names {
		a, err := tx.Agents().Brief(ctx, t.ID, name)
		if errors.Is(err, store.ErrNotFound) {
			return fleet.Invalid("agents", "there is no agent %q in tenant %q: enroll it first", name, t.Name)
		}
		if err != nil {
			return err
		}
		r.Agents = append(r.Agents, fleet.AccessAgent{ID: a.ID, Name: a.Name})
	}
	return nil
}

func setAccessEnvironments(ctx context.Context, tx store.Tx, t fleet.Tenant, r *fleet.AccessRule, names []string) error {
	if len(names) > fleet.MaxAccessEntries {
		return fleet.Invalid("environments", "a rule has at most %d environments: use labels of agents, or allAgents", fleet.MaxAccessEntries)
	}
	r.Environments = nil
	for _, name := range names {
		e, err := tx.Environments().ByName(ctx, t.ID, name)
		if errors.Is(err, store.ErrNotFound) {
			return fleet.Invalid("environments", "there is no environment %q in tenant %q: create it first", name, t.Name)
		}
		if err != nil {
			return err
		}
		if e.Push != nil {
			return fleet.Invalid("environments", "environment %q is a push environment, whose cluster has no agent and therefore no tunnel", name)
		}
		r.Environments = append(r.Environments, fleet.AccessEnvironment{ID: e.ID, Name: e.Name})
	}
	return nil
}

func accessRuleEvent(action string, r fleet.AccessRule) fleet.AuditEvent {
	return fleet.AuditEvent{TenantID: r.TenantID, Action: action, Kind: "access-rule", Name: r.Name, ID: string(r.ID), Detail: accessWords(r)}
}

func accessWords(r fleet.AccessRule) string {
	var subjects, agents, environments []string
	for _, x := range r.Subjects {
		subjects = append(subjects, string(x.Kind)+" "+x.Name)
	}
	for _, x := range r.Agents {
		agents = append(agents, x.Name)
	}
	for _, x := range r.Environments {
		environments = append(environments, x.Name)
	}
	text := "subjects: " + listWords(subjects, "none")
	if r.AllAgents {
		text += "; all agents"
	} else {
		text += "; agents: " + listWords(agents, "none") + "; environments: " + listWords(environments, "none")
	}
	if r.ReadOnly {
		text += "; read-only"
	}
	return text
}
