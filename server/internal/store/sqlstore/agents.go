package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type agents struct{ tx *Tx }

const agentColumns = `SELECT id, tenant_id, name, scope, spec, created_at, COALESCE(capabilities, ''), uninstalling, engine_namespace, deliver_git_credentials,
	included_kinds, excluded_kinds, kinds_from_config, instance, draining, tunnel FROM agents `

func (s agents) Get(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) (fleet.Agent, error) {
	a, err := only(s.list(ctx, tenant, agentColumns+`WHERE tenant_id = $1 AND id = $2`, tenant, id))
	if err != nil {
		return fleet.Agent{}, fmt.Errorf("reading agent %q: %w", id, err)
	}
	return a, nil
}

func (s agents) SpecRevision(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) (int64, error) {
	var n int64
	if err := s.tx.of(tenant).get(ctx, []any{&n}, `SELECT spec FROM agents WHERE tenant_id = $1 AND id = $2`, tenant, id); err != nil {
		return 0, fmt.Errorf("reading the revision of agent %q: %w", id, err)
	}
	return n, nil
}

func (s agents) ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Agent, error) {
	a, err := only(s.list(ctx, tenant, agentColumns+`WHERE tenant_id = $1 AND name = $2`, tenant, name))
	if err != nil {
		return fleet.Agent{}, fmt.Errorf("reading agent %q: %w", name, err)
	}
	return a, nil
}

func (s agents) Brief(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Agent, error) {
	a, err := only(s.rows(ctx, tenant, agentColumns+`WHERE tenant_id = $1 AND name = $2`, tenant, name))
	if err != nil {
		return fleet.Agent{}, fmt.Errorf("reading agent %q: %w", name, err)
	}
	return a, nil
}

func (s agents) Of(ctx context.Context, tenant fleet.TenantID, ids []fleet.AgentID) ([]fleet.Agent, error) {
	out, err := s.list(ctx, tenant, agentColumns+`WHERE tenant_id = $1 AND id IN (SELECT value FROM json_each($2)) ORDER BY name`, tenant, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("reading %d agents: %w", len(ids), err)
	}
	return out, nil
}

// agentReason is the reason of the state of an agent.
const agentReason = `CASE WHEN connected THEN 'AgentConnected'
	WHEN EXISTS (SELECT 1 FROM connections c WHERE c.tenant_id = agents.tenant_id AND c.agent_id = agents.id) THEN 'AgentDisconnected'
	ELSE 'AgentNeverConnected' END`

func (s agents) List(ctx context.Context, tenant fleet.TenantID, f store.AgentFilter) ([]fleet.Agent, error) {
	var a args
	query := agentColumns + `WHERE tenant_id = ` + a.add(tenant) + ` AND name > ` + a.add(f.After)
	if f.Connected != nil {
		query += ` AND connected = ` + a.add(*f.Connected)
	}
	if f.Reason != "" {
		query += ` AND ` + agentReason + ` = ` + a.add(f.Reason)
	}
	if f.Text != "" {
		query += ` AND lower(name) LIKE ` + a.add(containing(f.Text)) + ` ESCAPE '\'`
	}
	if len(f.Labels) > 0 {
		query += ` AND (SELECT COUNT(*) FROM agent_labels l WHERE l.tenant_id = agents.tenant_id AND l.agent_id = agents.id
			AND l.key || '=' || l.value IN (SELECT value FROM json_each(` + a.add(idList(pairs(f.Labels))) + `))) = ` + a.add(len(f.Labels))
	}
	if len(f.Selector) > 0 {
		query += ` AND ` + selected(&a, f.Selector, `agent_labels l WHERE l.tenant_id = agents.tenant_id AND l.agent_id = agents.id`)
	}
	out, err := s.list(ctx, tenant, query+` ORDER BY name LIMIT `+a.add(limitOf(f.Limit)), a...)
	if err != nil {
		return nil, fmt.Errorf("listing agents: %w", err)
	}
	return out, nil
}

// list reads agents of one tenant and then, with one query each, their labels and namespaces.
func (s agents) list(ctx context.Context, tenant fleet.TenantID, query string, args ...any) ([]fleet.Agent, error) {
	out, err := s.rows(ctx, tenant, query, args...)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	at := map[fleet.AgentID]int{}
	for i := range out {
		at[out[i].ID], out[i].Labels = i, map[string]string{}
	}
	ids := idList(idsOf(out, func(a *fleet.Agent) fleet.AgentID { return a.ID }))
	err = s.tx.of(tenant).each(ctx, func(row Row) error {
		var id fleet.AgentID
		var key, value string
		err := row.Scan(&id, &key, &value)
		out[at[id]].Labels[key] = value
		return err
	}, `SELECT agent_id, key, value FROM agent_labels
		WHERE tenant_id = $1 AND agent_id IN (SELECT value FROM json_each($2))`, tenant, ids)
	if err != nil {
		return nil, err
	}
	err = s.tx.of(tenant).each(ctx, func(row Row) error {
		var id fleet.AgentID
		var namespace string
		err := row.Scan(&id, &namespace)
		a := &out[at[id]]
		a.Namespaces = append(a.Namespaces, namespace)
		return err
	}, `SELECT agent_id, namespace FROM agent_namespaces
		WHERE tenant_id = $1 AND agent_id IN (SELECT value FROM json_each($2)) ORDER BY agent_id, namespace`, tenant, ids)
	return out, err
}

// rows reads agents without their child rows.
func (s agents) rows(ctx context.Context, tenant fleet.TenantID, query string, args ...any) ([]fleet.Agent, error) {
	var out []fleet.Agent
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var a fleet.Agent
		err := row.Scan(&a.ID, &a.TenantID, &a.Name, &a.Scope, &a.SpecRevision, timeInto(&a.CreatedAt), &a.Capabilities, &a.Uninstalling, &a.EngineNamespace, &a.DeliverGitCredentials,
			listInto(&a.Kinds.Include), listInto(&a.Kinds.Exclude), &a.KindsFromConfig, &a.Instance, &a.Draining, &a.Tunnel)
		out = append(out, a)
		return err
	}, query, args...)
	return out, err
}

func (s agents) Count(ctx context.Context, tenant fleet.TenantID) (int, error) {
	var n int
	if err := s.tx.of(tenant).get(ctx, []any{&n}, `SELECT COUNT(*) FROM agents WHERE tenant_id = $1`, tenant); err != nil {
		return 0, fmt.Errorf("counting agents: %w", err)
	}
	return n, nil
}
