package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type tenants struct{ tx *Tx }

func (s tenants) Create(ctx context.Context, t fleet.Tenant) error {
	q, x := t.Quota, t.Suspension
	err := s.tx.everywhere().about(theTenants).insert(ctx, `INSERT INTO tenants (id, name, created_at, quota_agents, quota_environments,
			quota_repositories, quota_deployments, quota_targets, quota_tokens, suspended_at, suspended_by, suspension_reason)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING`,
		t.ID, t.Name, micros(t.CreatedAt), q.Agents, q.Environments, q.Repositories, q.Deployments, q.Targets, q.Tokens,
		micros(x.At), x.By, x.Reason)
	if err != nil {
		return fmt.Errorf("creating tenant %q: %w", t.Name, err)
	}
	return s.tx.recordTenant(t.ID)
}

func (t *Tx) recordTenant(id fleet.TenantID) error {
	return t.record(store.Change{TenantID: id, Kind: store.ChangeTenant, ID: string(id)})
}

const tenantColumns = `SELECT id, name, created_at, quota_agents, quota_environments, quota_repositories, quota_deployments,
	quota_targets, quota_tokens, suspended_at, suspended_by, suspension_reason FROM tenants `

func (s tenants) Get(ctx context.Context, id fleet.TenantID) (fleet.Tenant, error) {
	t, err := only(s.list(ctx, Subject(id), tenantColumns+`WHERE id = $1`, id))
	if err != nil {
		return fleet.Tenant{}, fmt.Errorf("reading tenant %q: %w", id, err)
	}
	return t, nil
}

func (s tenants) ByName(ctx context.Context, name string) (fleet.Tenant, error) {
	t, err := only(s.list(ctx, theTenants, tenantColumns+`WHERE name = $1`, name))
	if err != nil {
		return fleet.Tenant{}, fmt.Errorf("reading tenant %q: %w", name, err)
	}
	return t, nil
}

func (s tenants) List(ctx context.Context, page store.Page) ([]fleet.Tenant, error) {
	out, err := s.list(ctx, theTenants, tenantColumns+`WHERE name > $1 ORDER BY name LIMIT $2`, page.After, limitOf(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("listing tenants: %w", err)
	}
	return out, nil
}

func (s tenants) list(ctx context.Context, about Subject, query string, args ...any) ([]fleet.Tenant, error) {
	var out []fleet.Tenant
	err := s.tx.everywhere().about(about).each(ctx, func(row Row) error {
		var t fleet.Tenant
		q := &t.Quota
		err := row.Scan(append([]any{&t.ID, &t.Name, timeInto(&t.CreatedAt), &q.Agents, &q.Environments, &q.Repositories,
			&q.Deployments, &q.Targets, &q.Tokens}, suspensionInto(&t.Suspension)...)...)
		out = append(out, t)
		return err
	}, query, args...)
	return out, err
}

func (s tenants) SetQuota(ctx context.Context, id fleet.TenantID, q fleet.Quota) error {
	err := s.change(ctx, id, `UPDATE tenants SET quota_agents = $2, quota_environments = $3, quota_repositories = $4,
			quota_deployments = $5, quota_targets = $6, quota_tokens = $7
		WHERE id = $1 AND (quota_agents <> $2 OR quota_environments <> $3 OR quota_repositories <> $4
			OR quota_deployments <> $5 OR quota_targets <> $6 OR quota_tokens <> $7)`,
		q.Agents, q.Environments, q.Repositories, q.Deployments, q.Targets, q.Tokens)
	if err != nil {
		return fmt.Errorf("writing the quota of tenant %q: %w", id, err)
	}
	return nil
}

func (s tenants) SetSuspension(ctx context.Context, id fleet.TenantID, x fleet.Suspension) error {
	err := s.change(ctx, id, `UPDATE tenants SET suspended_at = $2, suspended_by = $3, suspension_reason = $4
		WHERE id = $1 AND (suspended_at IS DISTINCT FROM $2 OR suspended_by <> $3 OR suspension_reason <> $4)`,
		micros(x.At), x.By, x.Reason)
	if err != nil {
		return fmt.Errorf("writing the suspension of tenant %q: %w", id, err)
	}
	return nil
}

// change runs an update that writes the row only if it makes a difference, and then records it.
func (s tenants) change(ctx context.Context, id fleet.TenantID, update string, args ...any) error {
	n, err := s.tx.everywhere().about(Subject(id)).exec(ctx, update, append([]any{id}, args...)...)
	if err != nil {
		return err
	}
	if n > 0 {
		return s.tx.recordTenant(id)
	}
	return s.exists(ctx, id)
}

func (s tenants) exists(ctx context.Context, id fleet.TenantID) error {
	var one int
	return s.tx.everywhere().about(Subject(id)).get(ctx, []any{&one}, `SELECT 1 FROM tenants WHERE id = $1`, id)
}

func (s tenants) Delete(ctx context.Context, id fleet.TenantID) error {
	if err := s.delete(ctx, id); err != nil {
		return fmt.Errorf("deleting tenant %q: %w", id, err)
	}
	return s.tx.recordTenant(id)
}

// delete checks for references itself: the foreign keys would also fail, but an error of the database ends the
// whole transaction.
func (s tenants) delete(ctx context.Context, id fleet.TenantID) error {
	// Pending records of this tenant are written while it exists.
	if err := s.tx.flush(ctx); err != nil {
		return err
	}
	if err := s.touchGrantors(ctx, id); err != nil {
		return err
	}
	n, err := s.tx.everywhere().about(Subject(id)).exec(ctx, `DELETE FROM tenants WHERE id = $1
		AND NOT EXISTS (SELECT 1 FROM agents WHERE tenant_id = $1)
		AND NOT EXISTS (SELECT 1 FROM environments WHERE tenant_id = $1)
		AND NOT EXISTS (SELECT 1 FROM repositories WHERE tenant_id = $1)
		AND NOT EXISTS (SELECT 1 FROM credentials WHERE tenant_id = $1)
		AND NOT EXISTS (SELECT 1 FROM deployments WHERE tenant_id = $1)`, id)
	if err != nil || n > 0 {
		return err
	}
	if err := s.exists(ctx, id); err != nil {
		return err
	}
	return fmt.Errorf("it still owns resources: %w", store.ErrExists)
}

// touchGrantors declares changes of the tenants whose grants are deleted.
func (s tenants) touchGrantors(ctx context.Context, id fleet.TenantID) error {
	return s.tx.everywhere().about(Subject(id)).each(ctx, func(row Row) error {
		var owner fleet.TenantID
		err := row.Scan(&owner)
		s.tx.touch(Subject(owner))
		return err
	}, `SELECT DISTINCT tenant_id FROM grants WHERE grantee_tenant_id = $1`, id)
}
