package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func (t *Tx) recordEnvironment(tenant fleet.TenantID, id fleet.EnvironmentID) error {
	return t.record(store.Change{TenantID: tenant, Kind: store.ChangeEnvironment, ID: string(id)})
}

func (s environments) Create(ctx context.Context, e fleet.Environment) error {
	x := e.Suspension
	err := s.tx.of(e.TenantID).insert(ctx, `INSERT INTO environments (tenant_id, id, name, spec, created_at,
			suspended_at, suspended_by, suspension_reason, push_api_url, push_namespaces, push_cluster_resources, push_credential, push_instance, push_moving_from)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT DO NOTHING`,
		append([]any{e.TenantID, e.ID, e.Name, cmp.Or(e.SpecRevision, 1), micros(e.CreatedAt), micros(x.At), x.By, x.Reason}, pushValues(e.Push)...)...)
	if err == nil {
		err = s.fill(ctx, e)
	}
	if err != nil {
		return fmt.Errorf("creating environment %q: %w", e.Name, err)
	}
	return s.tx.recordEnvironment(e.TenantID, e.ID)
}

func (s environments) Update(ctx context.Context, e fleet.Environment) error {
	if err := s.update(ctx, e); err != nil {
		return fmt.Errorf("updating environment %q: %w", e.ID, err)
	}
	return s.tx.recordEnvironment(e.TenantID, e.ID)
}

func (s environments) update(ctx context.Context, e fleet.Environment) error {
	db, x := s.tx.of(e.TenantID), e.Suspension
	n, err := db.exec(ctx, `UPDATE environments SET spec = spec + 1, suspended_at = $3, suspended_by = $4, suspension_reason = $5,
			push_api_url = $6, push_namespaces = $7, push_cluster_resources = $8, push_credential = $9, push_instance = $10, push_moving_from = $11
		WHERE tenant_id = $1 AND id = $2`, append([]any{e.TenantID, e.ID, micros(x.At), x.By, x.Reason}, pushValues(e.Push)...)...)
	if err != nil {
		return err
	}
	if n == 0 {
		return store.ErrNotFound
	}
	_, err = db.exec(ctx, `DELETE FROM environment_agents WHERE tenant_id = $1 AND environment_id = $2`, e.TenantID, e.ID)
	if err != nil {
		return err
	}
	_, err = db.exec(ctx, `DELETE FROM environment_match_labels WHERE tenant_id = $1 AND environment_id = $2`, e.TenantID, e.ID)
	if err != nil {
		return err
	}
	return s.fill(ctx, e)
}

// fill writes the selectors of an environment that has none yet.
func (s environments) fill(ctx context.Context, e fleet.Environment) error {
	for _, agent := range e.Agents {
		_, err := s.tx.of(e.TenantID).exec(ctx, `INSERT INTO environment_agents (tenant_id, environment_id, agent_name) VALUES ($1, $2, $3)
			ON CONFLICT DO NOTHING`, e.TenantID, e.ID, agent)
		if err != nil {
			return fmt.Errorf("agent %q: %w", agent, err)
		}
	}
	for key, value := range e.MatchLabels {
		_, err := s.tx.of(e.TenantID).exec(ctx, `INSERT INTO environment_match_labels (tenant_id, environment_id, key, value)
			VALUES ($1, $2, $3, $4)`, e.TenantID, e.ID, key, value)
		if err != nil {
			return fmt.Errorf("label %q: %w", key, err)
		}
	}
	return nil
}

func (s environments) Delete(ctx context.Context, tenant fleet.TenantID, id fleet.EnvironmentID) error {
	if err := s.delete(ctx, tenant, id); err != nil {
		return fmt.Errorf("deleting environment %q: %w", id, err)
	}
	return s.tx.recordEnvironment(tenant, id)
}

// delete checks for references itself, in all tenants: deployments may belong to other tenants, which the
// foreign key sees and this tenant does not.
func (s environments) delete(ctx context.Context, tenant fleet.TenantID, id fleet.EnvironmentID) error {
	if !s.tx.writable {
		return store.ErrReadOnly
	}
	db := s.tx.of(tenant)
	var held int
	err := db.get(ctx, []any{&held}, `SELECT 1 FROM environments WHERE tenant_id = $1 AND id = $2 /* FOR UPDATE */`, tenant, id)
	if err != nil {
		return err
	}
	for _, query := range []string{
		`SELECT 1 FROM deployments WHERE environment_id = $1 LIMIT 1`,
		`SELECT 1 FROM pending_specs WHERE environment_id = $1 LIMIT 1`,
		`SELECT 1 FROM grants WHERE environment_id = $1 LIMIT 1`,
	} {
		err := s.tx.at(tenant).get(ctx, []any{&held}, query, id)
		if err == nil {
			return fmt.Errorf("it is still in use: %w", store.ErrExists)
		}
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	if err := s.tx.changeRules(ctx, tenant, rulesOfEnvironment, string(id)); err != nil {
		return err
	}
	_, err = db.exec(ctx, `DELETE FROM environments WHERE tenant_id = $1 AND id = $2`, tenant, id)
	return err
}
