package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type environments struct{ tx *Tx }

const environmentColumns = `SELECT id, tenant_id, name, spec, created_at, suspended_at, suspended_by, suspension_reason, ` + pushColumns + ` FROM environments `

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

// list reads environments of one tenant and then, with one query each, their selectors.
func (s environments) list(ctx context.Context, tenant fleet.TenantID, query string, args ...any) ([]fleet.Environment, error) {
	var out []fleet.Environment
	at := map[fleet.EnvironmentID]int{}
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		e := fleet.Environment{MatchLabels: map[string]string{}}
		var push pushRow
		into := append([]any{&e.ID, &e.TenantID, &e.Name, &e.SpecRevision, timeInto(&e.CreatedAt)}, suspensionInto(&e.Suspension)...)
		err := row.Scan(append(into, push.into()...)...)
		e.Push = push.push()
		at[e.ID] = len(out)
		out = append(out, e)
		return err
	}, query, args...)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	ids := idList(idsOf(out, func(e *fleet.Environment) fleet.EnvironmentID { return e.ID }))
	err = s.tx.of(tenant).each(ctx, func(row Row) error {
		var id fleet.EnvironmentID
		var agent string
		err := row.Scan(&id, &agent)
		e := &out[at[id]]
		e.Agents = append(e.Agents, agent)
		return err
	}, `SELECT environment_id, agent_name FROM environment_agents
		WHERE tenant_id = $1 AND environment_id IN (SELECT value FROM json_each($2))
		ORDER BY environment_id, agent_name`, tenant, ids)
	if err != nil {
		return nil, err
	}
	err = s.tx.of(tenant).each(ctx, func(row Row) error {
		var id fleet.EnvironmentID
		var key, value string
		err := row.Scan(&id, &key, &value)
		out[at[id]].MatchLabels[key] = value
		return err
	}, `SELECT environment_id, key, value FROM environment_match_labels
		WHERE tenant_id = $1 AND environment_id IN (SELECT value FROM json_each($2))`, tenant, ids)
	return out, err
}

func (s environments) Count(ctx context.Context, tenant fleet.TenantID) (int, error) {
	var n int
	if err := s.tx.of(tenant).get(ctx, []any{&n}, `SELECT COUNT(*) FROM environments WHERE tenant_id = $1 AND name NOT LIKE '%.%'`, tenant); err != nil {
		return 0, fmt.Errorf("counting environments: %w", err)
	}
	return n, nil
}
