package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// ofOwner binds to the tenant of a token, or to the fleet, and returns the corresponding condition; $1 is the
// placeholder of the tenant in both.
func (s tokens) ofOwner(tenant fleet.TenantID) (bound, string) {
	if tenant == "" {
		return s.tx.everywhere().about(theTokens), `tenant_id IS NULL AND $1 = ''`
	}
	return s.tx.of(tenant), `tenant_id = $1`
}

func (s tokens) CreateAPIToken(ctx context.Context, t fleet.APIToken) error {
	db, _ := s.ofOwner(t.TenantID)
	err := db.insert(ctx, `INSERT INTO api_tokens (id, tenant_id, name, role, subject, hash, fleet_admin, created_at, created_by,
			expires_at, revoked_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING`,
		t.ID, nullable(string(t.TenantID)), t.Name, t.Role, t.Subject, t.Hash, t.FleetAdmin, micros(t.CreatedAt), t.CreatedBy,
		micros(t.ExpiresAt), micros(t.RevokedAt))
	if err != nil {
		return fmt.Errorf("creating API token %q: %w", t.Name, err)
	}
	for _, group := range t.Groups {
		_, err := s.tx.aside().exec(ctx, `INSERT INTO api_token_groups (token_id, name) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
			t.ID, group)
		if err != nil {
			return fmt.Errorf("creating API token %q, group %q: %w", t.Name, group, err)
		}
	}
	return s.recordToken(t.TenantID, "", t.ID)
}

const apiTokenColumns = `SELECT id, COALESCE(tenant_id, ''), name, role, subject, hash, fleet_admin, created_at, created_by,
	expires_at, revoked_at FROM api_tokens `

func (s tokens) APITokenByHash(ctx context.Context, hash []byte) (fleet.APIToken, error) {
	t, err := only(s.apiTokens(ctx, s.tx.everywhere().aboutOwners(`SELECT COALESCE(tenant_id, '/tokens') FROM api_tokens WHERE hash = $1`, hash),
		apiTokenColumns+`WHERE hash = $1`, hash))
	if err != nil {
		return fleet.APIToken{}, fmt.Errorf("reading an API token by its hash: %w", err)
	}
	return t, nil
}

func (s tokens) APITokens(ctx context.Context, tenant fleet.TenantID, page store.Page) ([]fleet.APIToken, error) {
	db, owned := s.ofOwner(tenant)
	out, err := s.apiTokens(ctx, db, apiTokenColumns+`WHERE `+owned+` AND subject = '' AND (name, id) > ($2, $3)
		ORDER BY name, id LIMIT $4`, tenant, page.After, page.AfterID, limitOf(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("listing API tokens: %w", err)
	}
	return out, nil
}

func (s tokens) APIToken(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID) (fleet.APIToken, error) {
	db, owned := s.ofOwner(tenant)
	t, err := only(s.apiTokens(ctx, db, apiTokenColumns+`WHERE `+owned+` AND id = $2`, tenant, id))
	if err != nil {
		return fleet.APIToken{}, fmt.Errorf("reading API token %q: %w", id, err)
	}
	return t, nil
}

// apiTokens reads tokens, and the groups of those that are sessions.
func (s tokens) apiTokens(ctx context.Context, db bound, query string, args ...any) ([]fleet.APIToken, error) {
	var out []fleet.APIToken
	err := db.each(ctx, func(row Row) error {
		var t fleet.APIToken
		err := row.Scan(&t.ID, &t.TenantID, &t.Name, &t.Role, &t.Subject, &t.Hash, &t.FleetAdmin,
			timeInto(&t.CreatedAt), &t.CreatedBy, timeInto(&t.ExpiresAt), timeInto(&t.RevokedAt))
		out = append(out, t)
		return err
	}, query, args...)
	if err != nil {
		return nil, err
	}
	for i := range out {
		if out[i].Subject == "" {
			continue
		}
		err := s.tx.aside().each(ctx, func(row Row) error {
			var group string
			err := row.Scan(&group)
			out[i].Groups = append(out[i].Groups, group)
			return err
		}, `SELECT name FROM api_token_groups WHERE token_id = $1 ORDER BY name`, out[i].ID)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s tokens) RevokeAPIToken(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID, at time.Time) error {
	db, owned := s.ofOwner(tenant)
	n, err := db.exec(ctx, `UPDATE api_tokens SET revoked_at = $3 WHERE `+owned+` AND id = $2 AND revoked_at IS NULL`,
		tenant, id, micros(at))
	if err == nil && n == 0 {
		// A token that was revoked before keeps its time.
		var one int
		err = db.get(ctx, []any{&one}, `SELECT 1 FROM api_tokens WHERE `+owned+` AND id = $2`, tenant, id)
	}
	if err != nil {
		return fmt.Errorf("revoking API token %q: %w", id, err)
	}
	if n == 0 {
		return nil
	}
	return s.recordToken(tenant, "", id)
}

func (s tokens) RevokeSessions(ctx context.Context, subject string, at time.Time) (int, error) {
	var ended []fleet.TokenID
	err := s.tx.everywhere().about(theTokens).returningEach(ctx, func(row Row) error {
		var id fleet.TokenID
		err := row.Scan(&id)
		ended = append(ended, id)
		return err
	}, `UPDATE api_tokens SET revoked_at = $2 WHERE subject = $1 AND subject <> '' AND revoked_at IS NULL RETURNING id`,
		subject, micros(at))
	if err != nil {
		return 0, fmt.Errorf("revoking the sessions of %q: %w", subject, err)
	}
	for _, id := range ended {
		if err := s.recordToken("", "", id); err != nil {
			return 0, err
		}
	}
	return len(ended), nil
}

func (s tokens) CountAPITokens(ctx context.Context, tenant fleet.TenantID) (int, error) {
	var n int
	db, owned := s.ofOwner(tenant)
	err := db.get(ctx, []any{&n}, `SELECT COUNT(*) FROM api_tokens WHERE `+owned+` AND subject = '' AND revoked_at IS NULL`, tenant)
	if err != nil {
		return 0, fmt.Errorf("counting API tokens: %w", err)
	}
	return n, nil
}

func (s tokens) TrimAPITokens(ctx context.Context, before time.Time) (int, error) {
	n, err := s.tx.aside().exec(ctx, `DELETE FROM api_tokens WHERE expires_at < $1 OR revoked_at < $1`, micros(before))
	if err != nil {
		return 0, fmt.Errorf("trimming API tokens: %w", err)
	}
	return int(n), nil
}
