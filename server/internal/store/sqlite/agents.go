package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type agents struct{ *tx }

func (s agents) Create(ctx context.Context, a fleet.Agent) error {
	if err := s.create(ctx, a); err != nil {
		return fmt.Errorf("creating agent %q: %w", a.Name, err)
	}
	return s.record(ctx, store.Change{TenantID: a.TenantID, Kind: store.ChangeAgent, ID: string(a.ID), AgentID: a.ID})
}

func (s agents) create(ctx context.Context, a fleet.Agent) error {
	err := s.insert(ctx, `INSERT INTO agents (tenant_id, id, name, scope, created_at)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
		a.TenantID, a.ID, a.Name, a.Scope, micros(a.CreatedAt))
	if err != nil {
		return err
	}
	for key, value := range a.Labels {
		_, err := s.exec(ctx, `INSERT INTO agent_labels (tenant_id, agent_id, key, value) VALUES ($1, $2, $3, $4)`,
			a.TenantID, a.ID, key, value)
		if err != nil {
			return fmt.Errorf("label %q: %w", key, err)
		}
	}
	for _, namespace := range a.Namespaces {
		_, err := s.exec(ctx, `INSERT INTO agent_namespaces (tenant_id, agent_id, namespace) VALUES ($1, $2, $3)
			ON CONFLICT DO NOTHING`, a.TenantID, a.ID, namespace)
		if err != nil {
			return fmt.Errorf("namespace %q: %w", namespace, err)
		}
	}
	return nil
}

const agentColumns = `SELECT id, tenant_id, name, scope, created_at FROM agents `

func (s agents) Get(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) (fleet.Agent, error) {
	a, err := only(s.list(ctx, tenant, agentColumns+`WHERE tenant_id = $1 AND id = $2`, tenant, id))
	if err != nil {
		return fleet.Agent{}, fmt.Errorf("reading agent %q: %w", id, err)
	}
	return a, nil
}

func (s agents) ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Agent, error) {
	a, err := only(s.list(ctx, tenant, agentColumns+`WHERE tenant_id = $1 AND name = $2`, tenant, name))
	if err != nil {
		return fleet.Agent{}, fmt.Errorf("reading agent %q: %w", name, err)
	}
	return a, nil
}

func (s agents) List(ctx context.Context, tenant fleet.TenantID, page store.Page) ([]fleet.Agent, error) {
	out, err := s.list(ctx, tenant, agentColumns+`WHERE tenant_id = $1 AND name > $2 ORDER BY name LIMIT $3`,
		tenant, page.After, limitOf(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("listing agents: %w", err)
	}
	return out, nil
}

// list reads agents of one tenant and then, in one query each, their labels and namespaces.
func (s agents) list(ctx context.Context, tenant fleet.TenantID, query string, args ...any) ([]fleet.Agent, error) {
	var out []fleet.Agent
	at := map[fleet.AgentID]int{}
	err := s.each(ctx, func(rows *sql.Rows) error {
		a := fleet.Agent{Labels: map[string]string{}}
		err := rows.Scan(&a.ID, &a.TenantID, &a.Name, &a.Scope, timeInto(&a.CreatedAt))
		at[a.ID] = len(out)
		out = append(out, a)
		return err
	}, query, args...)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	ids := idList(idsOf(out, func(a *fleet.Agent) fleet.AgentID { return a.ID }))
	err = s.each(ctx, func(rows *sql.Rows) error {
		var id fleet.AgentID
		var key, value string
		err := rows.Scan(&id, &key, &value)
		out[at[id]].Labels[key] = value
		return err
	}, `SELECT agent_id, key, value FROM agent_labels
		WHERE tenant_id = $1 AND agent_id IN (SELECT value FROM json_each($2))`, tenant, ids)
	if err != nil {
		return nil, err
	}
	err = s.each(ctx, func(rows *sql.Rows) error {
		var id fleet.AgentID
		var namespace string
		err := rows.Scan(&id, &namespace)
		a := &out[at[id]]
		a.Namespaces = append(a.Namespaces, namespace)
		return err
	}, `SELECT agent_id, namespace FROM agent_namespaces
		WHERE tenant_id = $1 AND agent_id IN (SELECT value FROM json_each($2)) ORDER BY agent_id, namespace`, tenant, ids)
	return out, err
}

func (s agents) Delete(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) error {
	if err := s.delete(ctx, tenant, id); err != nil {
		return fmt.Errorf("deleting agent %q: %w", id, err)
	}
	return s.record(ctx, store.Change{TenantID: tenant, Kind: store.ChangeAgent, ID: string(id), AgentID: id})
}

// delete records what falls with the agent while it is still there to be named.
func (s agents) delete(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) error {
	err := s.recordEach(ctx, `INSERT INTO changes (tenant_id, kind, id, agent_id, deployment_id, at)
		SELECT tenant_id, $3, id, agent_id, '', $4 FROM agent_tokens
		WHERE tenant_id = $1 AND agent_id = $2 ORDER BY id`, tenant, id, store.ChangeToken, micros(s.at))
	if err != nil {
		return err
	}
	err = s.recordEach(ctx, `INSERT INTO changes (tenant_id, kind, id, agent_id, deployment_id, at)
		SELECT tenant_id, $3, id, agent_id, deployment_id, $4 FROM targets
		WHERE tenant_id = $1 AND agent_id = $2 ORDER BY id`, tenant, id, store.ChangeDesired, micros(s.at))
	if err != nil {
		return err
	}
	n, err := s.exec(ctx, `DELETE FROM agents WHERE tenant_id = $1 AND id = $2`, tenant, id)
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	return err
}
