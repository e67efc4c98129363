package sqlstore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func (t *Tx) recordAccessRule(tenant fleet.TenantID, id fleet.AccessRuleID) error {
	return t.record(store.Change{TenantID: tenant, Kind: store.ChangeAccessRule, ID: string(id)})
}

func (s accessRules) Create(ctx context.Context, r fleet.AccessRule) error {
	err := s.tx.of(r.TenantID).insert(ctx, `INSERT INTO access_rules (tenant_id, id, name, all_agents, read_only, spec, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
		r.TenantID, r.ID, r.Name, r.AllAgents, r.ReadOnly, cmp.Or(r.SpecRevision, 1), micros(r.CreatedAt))
	if err == nil {
		err = s.fill(ctx, r)
	}
	if err != nil {
		return fmt.Errorf("creating access rule %q: %w", r.Name, err)
	}
	return s.tx.recordAccessRule(r.TenantID, r.ID)
}

func (s accessRules) Update(ctx context.Context, r fleet.AccessRule) error {
	if err := s.update(ctx, r); err != nil {
		return fmt.Errorf("updating access rule %q: %w", r.ID, err)
	}
	return s.tx.recordAccessRule(r.TenantID, r.ID)
}

func (s accessRules) update(ctx context.Context, r fleet.AccessRule) error {
	db := s.tx.of(r.TenantID)
	n, err := db.exec(ctx, `UPDATE access_rules SET all_agents = $3, read_only = $4, spec = spec + 1 WHERE tenant_id = $1 AND id = $2`,
		r.TenantID, r.ID, r.AllAgents, r.ReadOnly)
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return err
	}
	for _, query := range []string{
		`DELETE FROM access_rule_subjects WHERE tenant_id = $1 AND rule_id = $2`,
		`DELETE FROM access_rule_agents WHERE tenant_id = $1 AND rule_id = $2`,
		`DELETE FROM access_rule_environments WHERE tenant_id = $1 AND rule_id = $2`,
	} {
		if _, err := db.exec(ctx, query, r.TenantID, r.ID); err != nil {
			return err
		}
	}
	return s.fill(ctx, r)
}

// fill writes the lists of a rule that has none yet.
func (s accessRules) fill(ctx context.Context, r fleet.AccessRule) error {
	db := s.tx.of(r.TenantID)
	for _, x := range r.Subjects {
		_, err := db.exec(ctx, `INSERT INTO access_rule_subjects (tenant_id, rule_id, kind, name) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
			r.TenantID, r.ID, x.Kind, x.Name)
		if err != nil {
			return fmt.Errorf("%s %q: %w", x.Kind, x.Name, err)
		}
	}
	for _, x := range r.Agents {
		_, err := db.exec(ctx, `INSERT INTO access_rule_agents (tenant_id, rule_id, agent_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
			r.TenantID, r.ID, x.ID)
		if err != nil {
			return fmt.Errorf("agent %q: %w", x.Name, err)
		}
	}
	for _, x := range r.Environments {
		_, err := db.exec(ctx, `INSERT INTO access_rule_environments (tenant_id, rule_id, environment_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
			r.TenantID, r.ID, x.ID)
		if err != nil {
			return fmt.Errorf("environment %q: %w", x.Name, err)
		}
	}
	return nil
}

func (s accessRules) Delete(ctx context.Context, tenant fleet.TenantID, id fleet.AccessRuleID) error {
	n, err := s.tx.of(tenant).exec(ctx, `DELETE FROM access_rules WHERE tenant_id = $1 AND id = $2`, tenant, id)
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("deleting access rule %q: %w", id, err)
	}
	return s.tx.recordAccessRule(tenant, id)
}

func (s accessRules) RemoveSubject(ctx context.Context, tenant fleet.TenantID, id fleet.AccessRuleID, x fleet.AccessSubject) error {
	db := s.tx.of(tenant)
	n, err := db.exec(ctx, `DELETE FROM access_rule_subjects WHERE tenant_id = $1 AND rule_id = $2 AND kind = $3 AND name = $4`, tenant, id, x.Kind, x.Name)
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err == nil {
		_, err = db.exec(ctx, `UPDATE access_rules SET spec = spec + 1 WHERE tenant_id = $1 AND id = $2`, tenant, id)
	}
	if err != nil {
		return fmt.Errorf("removing %s %q from access rule %q: %w", x.Kind, x.Name, id, err)
	}
	return s.tx.recordAccessRule(tenant, id)
}

// changeRules is called before a row is deleted that access rules refer to: the rules lose it, so they change. list is a
// query for their ids with the parameters tenant and row.
func (t *Tx) changeRules(ctx context.Context, tenant fleet.TenantID, list, row string) error {
	var ids []fleet.AccessRuleID
	err := t.of(tenant).returningEach(ctx, func(r Row) error {
		var id fleet.AccessRuleID
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	}, `UPDATE access_rules SET spec = spec + 1 WHERE tenant_id = $1 AND id IN (`+list+`) RETURNING id`, tenant, row)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := t.recordAccessRule(tenant, id); err != nil {
			return err
		}
	}
	return nil
}

const (
	rulesOfAgent       = `SELECT rule_id FROM access_rule_agents WHERE tenant_id = $1 AND agent_id = $2`
	rulesOfEnvironment = `SELECT rule_id FROM access_rule_environments WHERE tenant_id = $1 AND environment_id = $2`
)
