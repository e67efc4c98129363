package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type accessRules struct{ tx *Tx }

const accessRuleColumns = `SELECT id, tenant_id, name, all_agents, read_only, spec, created_at FROM access_rules `

func (s accessRules) ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.AccessRule, error) {
	r, err := only(s.list(ctx, tenant, accessRuleColumns+`WHERE tenant_id = $1 AND name = $2`, tenant, name))
	if err != nil {
		return fleet.AccessRule{}, fmt.Errorf("reading access rule %q: %w", name, err)
	}
	return r, nil
}

func (s accessRules) List(ctx context.Context, tenant fleet.TenantID, page store.Page) ([]fleet.AccessRule, error) {
	out, err := s.list(ctx, tenant, accessRuleColumns+`WHERE tenant_id = $1 AND name > $2 ORDER BY name LIMIT $3`,
		tenant, page.After, limitOf(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("listing access rules: %w", err)
	}
	return out, nil
}

// list reads rules of one tenant and then, with one query each, their subjects, agents, and environments.
func (s accessRules) list(ctx context.Context, tenant fleet.TenantID, query string, args ...any) ([]fleet.AccessRule, error) {
	var out []fleet.AccessRule
	at := map[fleet.AccessRuleID]int{}
	db := s.tx.of(tenant)
	err := db.each(ctx, func(row Row) error {
		var r fleet.AccessRule
		err := row.Scan(&r.ID, &r.TenantID, &r.Name, &r.AllAgents, &r.ReadOnly, &r.SpecRevision, timeInto(&r.CreatedAt))
		at[r.ID] = len(out)
		out = append(out, r)
		return err
	}, query, args...)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	ids := idList(idsOf(out, func(r *fleet.AccessRule) fleet.AccessRuleID { return r.ID }))
	err = db.each(ctx, func(row Row) error {
		var id fleet.AccessRuleID
		var x fleet.AccessSubject
		err := row.Scan(&id, &x.Kind, &x.Name)
		out[at[id]].Subjects = append(out[at[id]].Subjects, x)
		return err
	}, `SELECT rule_id, kind, name FROM access_rule_subjects
		WHERE tenant_id = $1 AND rule_id IN (SELECT value FROM json_each($2)) ORDER BY rule_id, kind, name`, tenant, ids)
	if err != nil {
		return nil, err
	}
	err = db.each(ctx, func(row Row) error {
		var id fleet.AccessRuleID
		var x fleet.AccessAgent
		err := row.Scan(&id, &x.ID, &x.Name)
		out[at[id]].Agents = append(out[at[id]].Agents, x)
		return err
	}, `SELECT l.rule_id, a.id, a.name FROM access_rule_agents l JOIN agents a ON a.tenant_id = l.tenant_id AND a.id = l.agent_id
		WHERE l.tenant_id = $1 AND l.rule_id IN (SELECT value FROM json_each($2)) ORDER BY l.rule_id, a.name`, tenant, ids)
	if err != nil {
		return nil, err
	}
	err = db.each(ctx, func(row Row) error {
		var id fleet.AccessRuleID
		var x fleet.AccessEnvironment
		err := row.Scan(&id, &x.ID, &x.Name)
		out[at[id]].Environments = append(out[at[id]].Environments, x)
		return err
	}, `SELECT l.rule_id, e.id, e.name FROM access_rule_environments l JOIN environments e ON e.tenant_id = l.tenant_id AND e.id = l.environment_id
		WHERE l.tenant_id = $1 AND l.rule_id IN (SELECT value FROM json_each($2)) ORDER BY l.rule_id, e.name`, tenant, ids)
	return out, err
}

func (s accessRules) Count(ctx context.Context, tenant fleet.TenantID) (int, error) {
	var n int
	if err := s.tx.of(tenant).get(ctx, []any{&n}, `SELECT COUNT(*) FROM access_rules WHERE tenant_id = $1`, tenant); err != nil {
		return 0, fmt.Errorf("counting access rules: %w", err)
	}
	return n, nil
}

// coveringRules says in SQL what [fleet.Environment.Selects] says: an environment of a rule covers the agents that it
// selects. A push environment covers none, because its cluster is not the one of its agent.
const coveringRules = `SELECT r.tenant_id, r.id, r.name, r.read_only FROM access_rules r
	WHERE r.tenant_id = $1 AND r.id IN (
		SELECT s.rule_id FROM access_rule_subjects s WHERE s.tenant_id = $1 AND s.kind = $3 AND s.name = $4
		UNION SELECT s.rule_id FROM access_rule_subjects s WHERE s.tenant_id = $1 AND s.kind = 'group' AND s.name IN (SELECT value FROM json_each($5)))
	AND EXISTS (SELECT 1 FROM agents a WHERE a.tenant_id = $1 AND a.id = $2 AND (r.all_agents
		OR EXISTS (SELECT 1 FROM access_rule_agents l WHERE l.tenant_id = $1 AND l.rule_id = r.id AND l.agent_id = $2)
		OR NOT a.uninstalling AND EXISTS (SELECT 1 FROM access_rule_environments l
			JOIN environments e ON e.tenant_id = l.tenant_id AND e.id = l.environment_id
			WHERE l.tenant_id = $1 AND l.rule_id = r.id AND e.push_api_url = '' AND (
				EXISTS (SELECT 1 FROM environment_agents n WHERE n.tenant_id = $1 AND n.environment_id = e.id AND n.agent_name = a.name)
				OR CASE WHEN EXISTS (SELECT 1 FROM environment_match_labels m WHERE m.tenant_id = $1 AND m.environment_id = e.id)
					THEN NOT EXISTS (SELECT 1 FROM environment_match_labels m WHERE m.tenant_id = $1 AND m.environment_id = e.id
						AND NOT EXISTS (SELECT 1 FROM agent_labels b WHERE b.tenant_id = $1 AND b.agent_id = $2 AND b.key = m.key AND b.value = m.value))
					ELSE NOT EXISTS (SELECT 1 FROM environment_agents n WHERE n.tenant_id = $1 AND n.environment_id = e.id) END))))
	ORDER BY r.name`

func (s accessRules) Covering(
	ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID, who fleet.AccessSubject, groups []string,
) ([]store.AccessMatch, error) {
	out, err := s.matches(ctx, s.tx.of(tenant), coveringRules, tenant, agent, who.Kind, who.Name, idList(groups))
	if err != nil {
		return nil, fmt.Errorf("reading the access rules for agent %q: %w", agent, err)
	}
	return out, nil
}

func (s accessRules) OfPersonAllTenants(ctx context.Context, person string) ([]store.AccessMatch, error) {
	out, err := s.matches(ctx, s.tx.everywhere(), `SELECT r.tenant_id, r.id, r.name, r.read_only FROM access_rules r
		JOIN access_rule_subjects s ON s.tenant_id = r.tenant_id AND s.rule_id = r.id
		WHERE s.kind = 'person' AND s.name = $1 ORDER BY r.tenant_id, r.name`, person)
	if err != nil {
		return nil, fmt.Errorf("reading the access rules of person %q: %w", person, err)
	}
	return out, nil
}

func (s accessRules) matches(ctx context.Context, db bound, query string, args ...any) ([]store.AccessMatch, error) {
	var out []store.AccessMatch
	err := db.each(ctx, func(row Row) error {
		var m store.AccessMatch
		err := row.Scan(&m.TenantID, &m.ID, &m.Name, &m.ReadOnly)
		out = append(out, m)
		return err
	}, query, args...)
	return out, err
}
