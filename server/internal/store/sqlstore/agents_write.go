package sqlstore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func (s agents) recordAgent(tenant fleet.TenantID, id fleet.AgentID) error {
	return s.tx.record(store.Change{TenantID: tenant, Kind: store.ChangeAgent, ID: string(id), AgentID: id})
}

func (s agents) Create(ctx context.Context, a fleet.Agent) error {
	err := s.tx.of(a.TenantID).insert(ctx, `INSERT INTO agents (tenant_id, id, name, scope, spec, connected, created_at, engine_namespace, deliver_git_credentials,
			included_kinds, excluded_kinds, kinds_from_config, instance, draining, tunnel)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) ON CONFLICT DO NOTHING`,
		a.TenantID, a.ID, a.Name, a.Scope, cmp.Or(a.SpecRevision, 1), false, micros(a.CreatedAt), a.EngineNamespace, a.DeliverGitCredentials,
		textList(a.Kinds.Include), textList(a.Kinds.Exclude), a.KindsFromConfig, a.Instance, a.Draining, a.Tunnel)
	if err == nil {
		err = s.fill(ctx, a)
	}
	if err != nil {
		return fmt.Errorf("creating agent %q: %w", a.Name, err)
	}
	return s.recordAgent(a.TenantID, a.ID)
}

func (s agents) Update(ctx context.Context, a fleet.Agent) error {
	if err := s.update(ctx, a); err != nil {
		return fmt.Errorf("updating agent %q: %w", a.ID, err)
	}
	return s.recordAgent(a.TenantID, a.ID)
}

func (s agents) SetUninstalling(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) error {
	n, err := s.tx.of(tenant).exec(ctx, `UPDATE agents SET uninstalling = $3, spec = spec + 1 WHERE tenant_id = $1 AND id = $2`, tenant, id, true)
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("marking agent %q as being uninstalled: %w", id, err)
	}
	return s.recordAgent(tenant, id)
}

func (s agents) update(ctx context.Context, a fleet.Agent) error {
	db := s.tx.of(a.TenantID)
	n, err := db.exec(ctx, `UPDATE agents SET scope = $3, engine_namespace = $4, deliver_git_credentials = $5,
			included_kinds = $6, excluded_kinds = $7, kinds_from_config = $8, instance = $9, draining = $10, tunnel = $11, spec = spec + 1 WHERE tenant_id = $1 AND id = $2`,
		a.TenantID, a.ID, a.Scope, a.EngineNamespace, a.DeliverGitCredentials,
		textList(a.Kinds.Include), textList(a.Kinds.Exclude), a.KindsFromConfig, a.Instance, a.Draining, a.Tunnel)
	if err != nil {
		return err
	}
	if n == 0 {
		return store.ErrNotFound
	}
	if _, err := db.exec(ctx, `DELETE FROM agent_labels WHERE tenant_id = $1 AND agent_id = $2`, a.TenantID, a.ID); err != nil {
		return err
	}
	if _, err := db.exec(ctx, `DELETE FROM agent_namespaces WHERE tenant_id = $1 AND agent_id = $2`, a.TenantID, a.ID); err != nil {
		return err
	}
	return s.fill(ctx, a)
}

// fill writes the child rows of an agent that has none yet.
func (s agents) fill(ctx context.Context, a fleet.Agent) error {
	for key, value := range a.Labels {
		_, err := s.tx.of(a.TenantID).exec(ctx, `INSERT INTO agent_labels (tenant_id, agent_id, key, value) VALUES ($1, $2, $3, $4)`,
			a.TenantID, a.ID, key, value)
		if err != nil {
			return fmt.Errorf("label %q: %w", key, err)
		}
	}
	for _, namespace := range a.Namespaces {
		_, err := s.tx.of(a.TenantID).exec(ctx, `INSERT INTO agent_namespaces (tenant_id, agent_id, namespace) VALUES ($1, $2, $3)
			ON CONFLICT DO NOTHING`, a.TenantID, a.ID, namespace)
		if err != nil {
			return fmt.Errorf("namespace %q: %w", namespace, err)
		}
	}
	return nil
}

func (s agents) Delete(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) error {
	if err := s.delete(ctx, tenant, id); err != nil {
		return fmt.Errorf("deleting agent %q: %w", id, err)
	}
	return s.recordAgent(tenant, id)
}

// delete records the changes of rows that are deleted or lose their agent while they still exist. The targets
// may belong to tenants that this one cannot read, so they are searched in all tenants after the agent is known
// to belong to the tenant.
func (s agents) delete(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) error {
	if !s.tx.writable {
		return store.ErrReadOnly
	}
	db := s.tx.of(tenant)
	var had string
	err := db.get(ctx, []any{&had}, `SELECT COALESCE(capabilities, '') FROM agents WHERE tenant_id = $1 AND id = $2 /* FOR UPDATE */`, tenant, id)
	if err != nil {
		return err
	}
	note := func(kind store.ChangeKind) func(Row) error {
		return func(row Row) error {
			c := store.Change{Kind: kind, AgentID: id}
			if err := row.Scan(&c.TenantID, &c.ID, &c.DeploymentID); err != nil {
				return err
			}
			return s.tx.record(c)
		}
	}
	err = db.each(ctx, note(store.ChangeToken), `SELECT tenant_id, id, '' FROM agent_tokens
		WHERE tenant_id = $1 AND agent_id = $2 ORDER BY id`, tenant, id)
	if err != nil {
		return err
	}
	s.tx.touch(guestsOf(tenant))
	err = s.tx.at(tenant).each(ctx, note(store.ChangeDesired), `SELECT tenant_id, id, deployment_id FROM targets
		WHERE agent_id = $1 ORDER BY tenant_id, id`, id)
	if err != nil {
		return err
	}
	if err := s.tx.changeRules(ctx, tenant, rulesOfAgent, string(id)); err != nil {
		return err
	}
	if _, err = db.exec(ctx, `DELETE FROM agents WHERE tenant_id = $1 AND id = $2`, tenant, id); err != nil {
		return err
	}
	return s.dropCapabilities(ctx, tenant, had)
}
