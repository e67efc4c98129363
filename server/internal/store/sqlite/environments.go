package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type environments struct{ *tx }

func (s environments) Create(ctx context.Context, e fleet.Environment) error {
	if err := s.create(ctx, e); err != nil {
		return fmt.Errorf("creating environment %q: %w", e.Name, err)
	}
	return s.record(ctx, store.Change{TenantID: e.TenantID, Kind: store.ChangeEnvironment, ID: string(e.ID)})
}

func (s environments) create(ctx context.Context, e fleet.Environment) error {
	err := s.insert(ctx, `INSERT INTO environments (tenant_id, id, name, created_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT DO NOTHING`, e.TenantID, e.ID, e.Name, micros(e.CreatedAt))
	if err != nil {
		return err
	}
	for _, agent := range e.Agents {
		_, err := s.exec(ctx, `INSERT INTO environment_agents (tenant_id, environment_id, agent_name) VALUES ($1, $2, $3)
			ON CONFLICT DO NOTHING`, e.TenantID, e.ID, agent)
		if err != nil {
			return fmt.Errorf("agent %q: %w", agent, err)
		}
	}
	for key, value := range e.MatchLabels {
		_, err := s.exec(ctx, `INSERT INTO environment_match_labels (tenant_id, environment_id, key, value)
			VALUES ($1, $2, $3, $4)`, e.TenantID, e.ID, key, value)
		if err != nil {
			return fmt.Errorf("label %q: %w", key, err)
		}
	}
	return nil
}

const environmentColumns = `SELECT id, tenant_id, name, created_at FROM environments `

func (s environments) Get(ctx context.Context, tenant fleet.TenantID, id fleet.EnvironmentID) (fleet.Environment, error) {
	e, err := only(s.list(ctx, tenant, environmentColumns+`WHERE tenant_id = $1 AND id = $2`, tenant, id))
	if err != nil {
		return fleet.Environment{}, fmt.Errorf("reading environment %q: %w", id, err)
	}
	return e, nil
}

func (s environments) ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Environment, error) {
	e, err := only(s.list(ctx, tenant, environmentColumns+`WHERE tenant_id = $1 AND name = $2`, tenant, name))
	if err != nil {
		return fleet.Environment{}, fmt.Errorf("reading environment %q: %w", name, err)
	}
	return e, nil
}

func (s environments) List(ctx context.Context, tenant fleet.TenantID, page store.Page) ([]fleet.Environment, error) {
	out, err := s.list(ctx, tenant, environmentColumns+`WHERE tenant_id = $1 AND name > $2 ORDER BY name LIMIT $3`,
		tenant, page.After, limitOf(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("listing environments: %w", err)
	}
	return out, nil
}

// list reads environments of one tenant and then, in one query each, what they select by.
func (s environments) list(ctx context.Context, tenant fleet.TenantID, query string, args ...any) ([]fleet.Environment, error) {
	var out []fleet.Environment
	at := map[fleet.EnvironmentID]int{}
	err := s.each(ctx, func(rows *sql.Rows) error {
		e := fleet.Environment{MatchLabels: map[string]string{}}
		err := rows.Scan(&e.ID, &e.TenantID, &e.Name, timeInto(&e.CreatedAt))
		at[e.ID] = len(out)
		out = append(out, e)
		return err
	}, query, args...)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	ids := idList(idsOf(out, func(e *fleet.Environment) fleet.EnvironmentID { return e.ID }))
	err = s.each(ctx, func(rows *sql.Rows) error {
		var id fleet.EnvironmentID
		var agent string
		err := rows.Scan(&id, &agent)
		e := &out[at[id]]
		e.Agents = append(e.Agents, agent)
		return err
	}, `SELECT environment_id, agent_name FROM environment_agents
		WHERE tenant_id = $1 AND environment_id IN (SELECT value FROM json_each($2))
		ORDER BY environment_id, agent_name`, tenant, ids)
	if err != nil {
		return nil, err
	}
	err = s.each(ctx, func(rows *sql.Rows) error {
		var id fleet.EnvironmentID
		var key, value string
		err := rows.Scan(&id, &key, &value)
		out[at[id]].MatchLabels[key] = value
		return err
	}, `SELECT environment_id, key, value FROM environment_match_labels
		WHERE tenant_id = $1 AND environment_id IN (SELECT value FROM json_each($2))`, tenant, ids)
	return out, err
}
