package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type tokens struct{ tx *Tx }

func (s tokens) CreateAgentToken(ctx context.Context, t fleet.AgentToken) error {
	err := s.tx.of(t.TenantID).insert(ctx, `INSERT INTO agent_tokens (tenant_id, id, agent_id, hash, created_at, created_by, last_used, revoked_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`,
		t.TenantID, t.ID, t.AgentID, t.Hash, micros(t.CreatedAt), t.CreatedBy, micros(t.LastUsed), micros(t.RevokedAt))
	if err != nil {
		return fmt.Errorf("creating token %q of agent %q: %w", t.ID, t.AgentID, err)
	}
	return s.recordToken(t.TenantID, t.AgentID, t.ID)
}

func (s tokens) recordToken(tenant fleet.TenantID, agent fleet.AgentID, id fleet.TokenID) error {
	return s.tx.record(store.Change{TenantID: tenant, Kind: store.ChangeToken, ID: string(id), AgentID: agent})
}

const agentTokenColumns = `SELECT id, tenant_id, agent_id, hash, created_at, created_by, last_used, revoked_at FROM agent_tokens `

func (s tokens) AgentTokenByHashAllTenants(ctx context.Context, hash []byte) (fleet.AgentToken, error) {
	t, err := only(s.agentTokens(ctx, s.tx.everywhere().aboutOwners(`SELECT tenant_id FROM agent_tokens WHERE hash = $1`, hash),
		agentTokenColumns+`WHERE hash = $1`, hash))
	if err != nil {
		return fleet.AgentToken{}, fmt.Errorf("reading an agent token by its hash: %w", err)
	}
	return t, nil
}

func (s tokens) AgentTokens(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID, page store.Page) ([]fleet.AgentToken, error) {
	after, err := numberAfter(page, 0)
	if err != nil {
		return nil, fmt.Errorf("listing tokens of agent %q: %w", agent, err)
	}
	out, err := s.agentTokens(ctx, s.tx.of(tenant), agentTokenColumns+`WHERE tenant_id = $1 AND agent_id = $2
		AND (created_at, id) > ($3, $4) ORDER BY created_at, id LIMIT $5`, tenant, agent, after, page.AfterID, limitOf(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("listing tokens of agent %q: %w", agent, err)
	}
	return out, nil
}

func (s tokens) agentTokens(ctx context.Context, db bound, query string, args ...any) ([]fleet.AgentToken, error) {
	var out []fleet.AgentToken
	err := db.each(ctx, func(row Row) error {
		var t fleet.AgentToken
		err := row.Scan(&t.ID, &t.TenantID, &t.AgentID, &t.Hash, timeInto(&t.CreatedAt), &t.CreatedBy,
			timeInto(&t.LastUsed), timeInto(&t.RevokedAt))
		out = append(out, t)
		return err
	}, query, args...)
	return out, err
}

func (s tokens) RevokeAgentToken(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID, at time.Time) error {
	agent, changed, err := s.revokeAgentToken(ctx, tenant, id, at)
	if err != nil {
		return fmt.Errorf("revoking token %q: %w", id, err)
	}
	if !changed {
		return nil
	}
	return s.recordToken(tenant, agent, id)
}

// revokeAgentToken returns false for a token that was revoked before: it keeps its time.
func (s tokens) revokeAgentToken(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID, at time.Time) (fleet.AgentID, bool, error) {
	var agent fleet.AgentID
	err := s.tx.of(tenant).returning(ctx, []any{&agent}, `UPDATE agent_tokens SET revoked_at = $3
		WHERE tenant_id = $1 AND id = $2 AND revoked_at IS NULL RETURNING agent_id`, tenant, id, micros(at))
	if !errors.Is(err, store.ErrNotFound) {
		return agent, err == nil, err
	}
	err = s.tx.of(tenant).get(ctx, []any{&agent}, `SELECT agent_id FROM agent_tokens WHERE tenant_id = $1 AND id = $2`, tenant, id)
	return agent, false, err
}

func (s tokens) TouchAgentToken(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID, at time.Time) error {
	n, err := s.tx.of(tenant).exec(ctx, `UPDATE agent_tokens SET last_used = CASE WHEN last_used > $3 THEN last_used ELSE $3 END
		WHERE tenant_id = $1 AND id = $2`, tenant, id, micros(at))
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("recording the use of token %q: %w", id, err)
	}
	return nil
}
