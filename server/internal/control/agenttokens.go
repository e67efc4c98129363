package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// AgentTokens lists the tokens of an agent, oldest first, without their secrets, which are not stored.
func (s *Service) AgentTokens(ctx context.Context, p auth.Principal, tenant, agent string, page store.Page) ([]fleet.AgentToken, error) {
	var out []fleet.AgentToken
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		a, err := agentByName(ctx, tx, t.ID, agent)
		if err != nil {
			return err
		}
		out, err = tx.Tokens().AgentTokens(ctx, t.ID, a.ID, page)
		return err
	})
	return out, err
}

// CreateAgentToken adds a token to an agent, given or with "" generated, and returns it only once. At most two
// are valid at a time: a third is a ConflictError.
func (s *Service) CreateAgentToken(ctx context.Context, p auth.Principal, tenant, agent, chosen string) (fleet.AgentToken, string, error) {
	secret := chosen
	if chosen == "" {
		secret = auth.NewToken(auth.AgentTokenPrefix)
	} else if err := auth.CheckUserToken("token", chosen); err != nil {
		return fleet.AgentToken{}, "", err
	}
	var out fleet.AgentToken
	err := s.store.Update(ctx, func(tx store.Tx) error {
		a, err := administrableAgent(ctx, tx, p, tenant, agent)
		if err != nil {
			return err
		}
		if err := checkOwner(ctx, tx, p, agentResource(a), "given a token"); err != nil {
			return err
		}
		if out, err = s.addAgentToken(ctx, tx, a, secret, p.Name); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, agentTokenEvent("agent-token.create", a, out.ID))
	})
	if err != nil {
		return fleet.AgentToken{}, "", err
	}
	return out, secret, nil
}

// addAgentToken stores the hash of a new token of an agent, if it may have one more.
func (s *Service) addAgentToken(ctx context.Context, tx store.Tx, a fleet.Agent, secret, by string) (fleet.AgentToken, error) {
	valid, err := validTokens(ctx, tx, a)
	if err != nil {
		return fleet.AgentToken{}, err
	}
	if len(valid) >= fleet.MaxAgentTokens {
		return fleet.AgentToken{}, fleet.Conflict("agent %q already has %d valid tokens (%s and %s): revoke the unused one first",
			a.Name, len(valid), valid[0].ID, valid[1].ID)
	}
	t := fleet.AgentToken{
		ID: fleet.NewTokenID(), TenantID: a.TenantID, AgentID: a.ID, Hash: auth.Hash(secret), CreatedAt: s.cfg.Now(), CreatedBy: by,
	}
	if err := tx.Tokens().CreateAgentToken(ctx, t); errors.Is(err, store.ErrExists) {
		return fleet.AgentToken{}, fleet.Invalid("token", "this token was used before: use another one")
	} else if err != nil {
		return fleet.AgentToken{}, err
	}
	return t, nil
}

func validTokens(ctx context.Context, tx store.Tx, a fleet.Agent) ([]fleet.AgentToken, error) {
	tokens, err := tx.Tokens().AgentTokens(ctx, a.TenantID, a.ID, store.Whole())
	var valid []fleet.AgentToken
	for _, t := range tokens {
		if t.Valid() {
			valid = append(valid, t)
		}
	}
	return valid, err
}

// RevokeAgentToken revokes a token of an agent. Its connections end; applied objects stay.
func (s *Service) RevokeAgentToken(ctx context.Context, p auth.Principal, tenant, agent string, id fleet.TokenID) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		a, err := administrableAgent(ctx, tx, p, tenant, agent)
		if err != nil {
			return err
		}
		tokens, err := tx.Tokens().AgentTokens(ctx, a.TenantID, a.ID, store.Whole())
		if err != nil {
			return err
		}
		for _, t := range tokens {
			if t.ID != id {
				continue
			}
			if !t.Valid() {
				return nil
			}
			if err := tx.Tokens().RevokeAgentToken(ctx, a.TenantID, id, s.cfg.Now()); err != nil {
				return err
			}
			return s.audit(ctx, tx, p, agentTokenEvent("agent-token.revoke", a, id))
		}
		return fmt.Errorf("token %q of agent %q: %w", id, agent, store.ErrNotFound)
	})
}

func agentTokenEvent(action string, a fleet.Agent, id fleet.TokenID) fleet.AuditEvent {
	return fleet.AuditEvent{TenantID: a.TenantID, Action: action, Kind: "agent-token", Name: a.Name, ID: string(id)}
}
