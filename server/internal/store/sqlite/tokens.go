package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type tokens struct{ *tx }

func (s tokens) CreateAgentToken(ctx context.Context, t fleet.AgentToken) error {
	err := s.insert(ctx, `INSERT INTO agent_tokens (tenant_id, id, agent_id, hash, created_at, revoked_at)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
		t.TenantID, t.ID, t.AgentID, t.Hash, micros(t.CreatedAt), micros(t.RevokedAt))
	if err != nil {
		return fmt.Errorf("creating token %q of agent %q: %w", t.ID, t.AgentID, err)
	}
	return s.recordToken(ctx, t.TenantID, t.AgentID, t.ID)
}

func (s tokens) recordToken(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID, id fleet.TokenID) error {
	return s.record(ctx, store.Change{TenantID: tenant, Kind: store.ChangeToken, ID: string(id), AgentID: agent})
}

const agentTokenColumns = `SELECT id, tenant_id, agent_id, hash, created_at, revoked_at FROM agent_tokens `

func (s tokens) AgentTokenByHashAllTenants(ctx context.Context, hash []byte) (fleet.AgentToken, error) {
	t, err := only(s.list(ctx, agentTokenColumns+`WHERE hash = $1`, hash))
	if err != nil {
		return fleet.AgentToken{}, fmt.Errorf("reading an agent token by its hash: %w", err)
	}
	return t, nil
}

func (s tokens) AgentTokens(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID) ([]fleet.AgentToken, error) {
	out, err := s.list(ctx, agentTokenColumns+`WHERE tenant_id = $1 AND agent_id = $2 ORDER BY created_at, id`, tenant, agent)
	if err != nil {
		return nil, fmt.Errorf("listing tokens of agent %q: %w", agent, err)
	}
	return out, nil
}

func (s tokens) list(ctx context.Context, query string, args ...any) ([]fleet.AgentToken, error) {
	var out []fleet.AgentToken
	err := s.each(ctx, func(rows *sql.Rows) error {
		var t fleet.AgentToken
		err := rows.Scan(&t.ID, &t.TenantID, &t.AgentID, &t.Hash, timeInto(&t.CreatedAt), timeInto(&t.RevokedAt))
		out = append(out, t)
		return err
	}, query, args...)
	return out, err
}

func (s tokens) RevokeAgentToken(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID, at time.Time) error {
	agent, changed, err := s.revoke(ctx, tenant, id, at)
	if err != nil {
		return fmt.Errorf("revoking token %q: %w", id, err)
	}
	if !changed {
		return nil
	}
	return s.recordToken(ctx, tenant, agent, id)
}

// revoke reports false for a token that was revoked before: the first time stands.
func (s tokens) revoke(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID, at time.Time) (fleet.AgentID, bool, error) {
	if !s.writable {
		return "", false, store.ErrReadOnly
	}
	var agent fleet.AgentID
	err := s.get(ctx, []any{&agent}, `UPDATE agent_tokens SET revoked_at = $3
		WHERE tenant_id = $1 AND id = $2 AND revoked_at IS NULL RETURNING agent_id`, tenant, id, micros(at))
	if !errors.Is(err, store.ErrNotFound) {
		return agent, err == nil, err
	}
	err = s.get(ctx, []any{&agent}, `SELECT agent_id FROM agent_tokens WHERE tenant_id = $1 AND id = $2`, tenant, id)
	return agent, false, err
}

func (s tokens) CreateAPIToken(ctx context.Context, t fleet.APIToken) error {
	err := s.insert(ctx, `INSERT INTO api_tokens (id, name, role, hash, created_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT DO NOTHING`, t.ID, t.Name, t.Role, t.Hash, micros(t.CreatedAt))
	if err != nil {
		return fmt.Errorf("creating API token %q: %w", t.Name, err)
	}
	return nil
}

func (s tokens) APITokenByHash(ctx context.Context, hash []byte) (fleet.APIToken, error) {
	var t fleet.APIToken
	err := s.get(ctx, []any{&t.ID, &t.Name, &t.Role, &t.Hash, timeInto(&t.CreatedAt)},
		`SELECT id, name, role, hash, created_at FROM api_tokens WHERE hash = $1`, hash)
	if err != nil {
		return fleet.APIToken{}, fmt.Errorf("reading an API token by its hash: %w", err)
	}
	return t, nil
}

func (s tokens) CountAPITokens(ctx context.Context) (int, error) {
	var n int
	if err := s.get(ctx, []any{&n}, `SELECT COUNT(*) FROM api_tokens`); err != nil {
		return 0, fmt.Errorf("counting API tokens: %w", err)
	}
	return n, nil
}
