package sqlstore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type credentials struct{ tx *Tx }

func (s credentials) recordCredential(tenant fleet.TenantID, id fleet.CredentialID) error {
	return s.tx.record(store.Change{TenantID: tenant, Kind: store.ChangeCredential, ID: string(id)})
}

func (s credentials) Create(ctx context.Context, c fleet.Credential) error {
	err := s.tx.of(c.TenantID).insert(ctx, `INSERT INTO credentials (tenant_id, id, name, kind, username, known_hosts,
			sealed_key_id, sealed_key, sealed_data, spec, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING`,
		c.TenantID, c.ID, c.Name, c.Kind, c.Username, c.KnownHosts,
		c.Sealed.KeyID, bytesOf(c.Sealed.Key), bytesOf(c.Sealed.Data), cmp.Or(c.SpecRevision, 1), micros(c.CreatedAt), micros(c.UpdatedAt))
	if err != nil {
		return fmt.Errorf("creating credential %q: %w", c.Name, err)
	}
	return s.recordCredential(c.TenantID, c.ID)
}

const credentialColumns = `SELECT id, tenant_id, name, kind, username, known_hosts, sealed_key_id, sealed_key, sealed_data,
	spec, created_at, updated_at FROM credentials `

func (s credentials) Get(ctx context.Context, tenant fleet.TenantID, id fleet.CredentialID) (fleet.Credential, error) {
	c, err := only(s.list(ctx, s.tx.of(tenant), credentialColumns+`WHERE tenant_id = $1 AND id = $2`, tenant, id))
	if err != nil {
		return fleet.Credential{}, fmt.Errorf("reading credential %q: %w", id, err)
	}
	return c, nil
}

func (s credentials) ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Credential, error) {
	c, err := only(s.list(ctx, s.tx.of(tenant), credentialColumns+`WHERE tenant_id = $1 AND name = $2`, tenant, name))
	if err != nil {
		return fleet.Credential{}, fmt.Errorf("reading credential %q: %w", name, err)
	}
	return c, nil
}

func (s credentials) List(ctx context.Context, tenant fleet.TenantID, page store.Page) ([]fleet.Credential, error) {
	out, err := s.list(ctx, s.tx.of(tenant), credentialColumns+`WHERE tenant_id = $1 AND name > $2 AND kind <> 'kubernetes' ORDER BY name LIMIT $3`,
		tenant, page.After, limitOf(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("listing credentials: %w", err)
	}
	return out, nil
}

// NotSealedByAllTenants searches on both sides of the key in the index: usually there is nothing.
func (s credentials) NotSealedByAllTenants(ctx context.Context, keyID string, limit int) ([]fleet.Credential, error) {
	out, err := s.list(ctx, s.tx.everywhere(), credentialColumns+`WHERE sealed_key_id < $1 OR sealed_key_id > $1
		ORDER BY sealed_key_id, id LIMIT $2`, keyID, limitOf(limit))
	if err != nil {
		return nil, fmt.Errorf("listing credentials that are not sealed by key %q: %w", keyID, err)
	}
	return out, nil
}

func (s credentials) list(ctx context.Context, db bound, query string, args ...any) ([]fleet.Credential, error) {
	var out []fleet.Credential
	err := db.each(ctx, func(row Row) error {
		var c fleet.Credential
		err := row.Scan(&c.ID, &c.TenantID, &c.Name, &c.Kind, &c.Username, &c.KnownHosts,
			&c.Sealed.KeyID, &c.Sealed.Key, &c.Sealed.Data, &c.SpecRevision, timeInto(&c.CreatedAt), timeInto(&c.UpdatedAt))
		out = append(out, c)
		return err
	}, query, args...)
	return out, err
}

func (s credentials) Update(ctx context.Context, c fleet.Credential) error {
	n, err := s.tx.of(c.TenantID).exec(ctx, `UPDATE credentials SET username = $3, known_hosts = $4, sealed_key_id = $5,
			sealed_key = $6, sealed_data = $7, updated_at = $8, spec = spec + 1
		WHERE tenant_id = $1 AND id = $2`, c.TenantID, c.ID, c.Username, c.KnownHosts,
		c.Sealed.KeyID, bytesOf(c.Sealed.Key), bytesOf(c.Sealed.Data), micros(c.UpdatedAt))
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("updating credential %q: %w", c.ID, err)
	}
	return s.recordCredential(c.TenantID, c.ID)
}

func (s credentials) Reseal(ctx context.Context, was fleet.Credential, x fleet.Sealed) (bool, error) {
	n, err := s.tx.of(was.TenantID).exec(ctx, `UPDATE credentials SET sealed_key_id = $3, sealed_key = $4, sealed_data = $5
		WHERE tenant_id = $1 AND id = $2 AND sealed_key = $6 AND sealed_data = $7`, was.TenantID, was.ID,
		x.KeyID, bytesOf(x.Key), bytesOf(x.Data), bytesOf(was.Sealed.Key), bytesOf(was.Sealed.Data))
	if err != nil {
		return false, fmt.Errorf("resealing credential %q: %w", was.ID, err)
	}
	return n > 0, nil
}

func (s credentials) Delete(ctx context.Context, tenant fleet.TenantID, id fleet.CredentialID) error {
	if err := s.delete(ctx, tenant, id); err != nil {
		return fmt.Errorf("deleting credential %q: %w", id, err)
	}
	return s.recordCredential(tenant, id)
}

func (s credentials) delete(ctx context.Context, tenant fleet.TenantID, id fleet.CredentialID) error {
	db := s.tx.of(tenant)
	n, err := db.exec(ctx, `DELETE FROM credentials WHERE tenant_id = $1 AND id = $2 AND NOT EXISTS (
		SELECT 1 FROM repositories WHERE tenant_id = $1 AND credential_id = $2)`, tenant, id)
	if err != nil || n > 0 {
		return err
	}
	var one int
	if err := db.get(ctx, []any{&one}, `SELECT 1 FROM credentials WHERE tenant_id = $1 AND id = $2`, tenant, id); err != nil {
		return err
	}
	return fmt.Errorf("repositories use it: %w", store.ErrExists)
}
