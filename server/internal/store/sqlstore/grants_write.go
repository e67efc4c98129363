package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func (s grants) Create(ctx context.Context, g fleet.Grant) error {
	if err := s.create(ctx, g); err != nil {
		return fmt.Errorf("granting environment %q to tenant %q: %w", g.EnvironmentID, g.Grantee, err)
	}
	return s.recordGrant(g)
}

// create copies the names, because neither tenant can join the rows of the other.
func (s grants) create(ctx context.Context, g fleet.Grant) error {
	db := s.tx.of(g.TenantID)
	var environment, owner, grantee string
	err := db.get(ctx, []any{&environment}, `SELECT name FROM environments WHERE tenant_id = $1 AND id = $2`, g.TenantID, g.EnvironmentID)
	if err != nil {
		return err
	}
	for tenant, name := range map[fleet.TenantID]*string{g.TenantID: &owner, g.Grantee: &grantee} {
		if err := s.tx.everywhere().about(Subject(tenant)).get(ctx, []any{name}, `SELECT name FROM tenants WHERE id = $1`, tenant); err != nil {
			return err
		}
	}
	err = db.insert(ctx, `INSERT INTO grants (tenant_id, grantee_tenant_id, id, environment_id, environment_name, owner_name, grantee_name, service_account, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING`,
		g.TenantID, g.Grantee, g.ID, g.EnvironmentID, environment, owner, grantee, g.ServiceAccount, micros(g.CreatedAt))
	if err != nil {
		return err
	}
	return s.fill(ctx, g)
}

// fill writes the limits of a grant that has none yet.
func (s grants) fill(ctx context.Context, g fleet.Grant) error {
	for _, namespace := range g.Limits.Namespaces {
		_, err := s.tx.of(g.TenantID).exec(ctx, `INSERT INTO grant_namespaces (tenant_id, grantee_tenant_id, grant_id, namespace)
			VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`, g.TenantID, g.Grantee, g.ID, namespace)
		if err != nil {
			return fmt.Errorf("namespace %q: %w", namespace, err)
		}
	}
	for _, kind := range g.Limits.Kinds {
		_, err := s.tx.of(g.TenantID).exec(ctx, `INSERT INTO grant_kinds (tenant_id, grantee_tenant_id, grant_id, kind)
			VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`, g.TenantID, g.Grantee, g.ID, kind)
		if err != nil {
			return fmt.Errorf("kind %q: %w", kind, err)
		}
	}
	return nil
}

// recordGrant records the change for both tenants, because both read it.
func (s grants) recordGrant(g fleet.Grant) error {
	if err := s.tx.recordEnvironment(g.TenantID, g.EnvironmentID); err != nil {
		return err
	}
	return s.tx.recordEnvironment(g.Grantee, g.EnvironmentID)
}

func (s grants) Update(ctx context.Context, g fleet.Grant) error {
	kept, err := s.update(ctx, g)
	if err != nil {
		return fmt.Errorf("updating grant %q: %w", g.ID, err)
	}
	return s.recordGrant(kept)
}

func (s grants) update(ctx context.Context, g fleet.Grant) (fleet.Grant, error) {
	kept, err := s.own(ctx, g.TenantID, g.ID)
	if err != nil {
		return fleet.Grant{}, err
	}
	db := s.tx.of(g.TenantID)
	if _, err := db.exec(ctx, `DELETE FROM grant_namespaces WHERE tenant_id = $1 AND grant_id = $2`, g.TenantID, g.ID); err != nil {
		return fleet.Grant{}, err
	}
	if _, err := db.exec(ctx, `DELETE FROM grant_kinds WHERE tenant_id = $1 AND grant_id = $2`, g.TenantID, g.ID); err != nil {
		return fleet.Grant{}, err
	}
	_, err = db.exec(ctx, `UPDATE grants SET service_account = $3 WHERE tenant_id = $1 AND id = $2`, g.TenantID, g.ID, g.ServiceAccount)
	if err != nil {
		return fleet.Grant{}, err
	}
	kept.Limits, kept.ServiceAccount = g.Limits, g.ServiceAccount
	return kept, s.fill(ctx, kept)
}

// own finds and locks a grant that belongs to a tenant.
func (s grants) own(ctx context.Context, tenant fleet.TenantID, id fleet.GrantID) (fleet.Grant, error) {
	g := fleet.Grant{ID: id, TenantID: tenant}
	if !s.tx.writable {
		return g, store.ErrReadOnly
	}
	err := s.tx.of(tenant).get(ctx, []any{&g.EnvironmentID, &g.Grantee}, `SELECT environment_id, grantee_tenant_id FROM grants
		WHERE tenant_id = $1 AND id = $2 /* FOR UPDATE */`, tenant, id)
	return g, err
}

func (s grants) Delete(ctx context.Context, tenant fleet.TenantID, id fleet.GrantID) error {
	g, err := s.delete(ctx, tenant, id)
	if err != nil {
		return fmt.Errorf("deleting grant %q: %w", id, err)
	}
	return s.recordGrant(g)
}

// delete checks for targets in all tenants, because they belong to the other tenant.
func (s grants) delete(ctx context.Context, tenant fleet.TenantID, id fleet.GrantID) (fleet.Grant, error) {
	g, err := s.own(ctx, tenant, id)
	if err != nil {
		return g, err
	}
	var held int
	err = s.tx.at(tenant).get(ctx, []any{&held}, `SELECT 1 FROM targets WHERE grant_id = $1 LIMIT 1`, id)
	if err == nil {
		return g, fmt.Errorf("targets use it: %w", store.ErrExists)
	}
	if !errors.Is(err, store.ErrNotFound) {
		return g, err
	}
	_, err = s.tx.of(tenant).exec(ctx, `DELETE FROM grants WHERE tenant_id = $1 AND id = $2`, tenant, id)
	return g, err
}
