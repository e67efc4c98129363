package control

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/quota"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// maxExpiry limits the lifetime of a token with an expiry.
const maxExpiry = 10 * 365 * 24 * time.Hour

// tokenOwner returns the tenant of tokens: without a name the fleet, which has no tenant.
func tokenOwner(ctx context.Context, tx store.Tx, p auth.Principal, tenant string) (fleet.Tenant, error) {
	if tenant == "" {
		return fleet.Tenant{}, fleetAdmin(p)
	}
	return administrable(ctx, tx, p, tenant)
}

// APITokens lists the tokens of a tenant, or without a name those of the fleet, without their secrets, which
// are not stored. It includes revoked and expired ones for a while.
func (s *Service) APITokens(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]fleet.APIToken, error) {
	var out []fleet.APIToken
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := tokenOwner(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out, err = tx.Tokens().APITokens(ctx, t.ID, page)
		return err
	})
	return out, err
}

// CreateAPIToken creates a token with at most the role of p, and returns its secret only once. Names are unique
// among valid tokens, because the audit log uses them.
func (s *Service) CreateAPIToken(ctx context.Context, p auth.Principal, tenant string, req CreateAPIToken) (fleet.APIToken, string, error) {
	if err := checkAPIToken(tenant, &req); err != nil {
		return fleet.APIToken{}, "", err
	}
	secret := auth.NewToken(auth.APITokenPrefix)
	var out fleet.APIToken
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := tokenOwner(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out = s.newAPIToken(p, t.ID, req, secret)
		if err := s.admitToken(ctx, tx, p, t, out); err != nil {
			return err
		}
		if err := tx.Tokens().CreateAPIToken(ctx, out); err != nil {
			return fmt.Errorf("token %q: %w", req.Name, err)
		}
		return s.audit(ctx, tx, p, tokenEvent("token.create", out))
	})
	if err != nil {
		return fleet.APIToken{}, "", err
	}
	return out, secret, nil
}

func (s *Service) newAPIToken(p auth.Principal, tenant fleet.TenantID, req CreateAPIToken, secret string) fleet.APIToken {
	now := s.cfg.Now()
	t := fleet.APIToken{
		ID: fleet.NewTokenID(), TenantID: tenant, Name: req.Name, Role: req.Role, Hash: auth.Hash(secret), CreatedAt: now, CreatedBy: p.Name,
	}
	if req.ExpiresIn > 0 {
		t.ExpiresAt = now.Add(req.ExpiresIn)
	}
	return t
}

// admitToken checks a new token against the role of p, the quota, and the names in use.
func (s *Service) admitToken(ctx context.Context, tx store.Tx, p auth.Principal, owner fleet.Tenant, t fleet.APIToken) error {
	if owner.ID != "" {
		if err := grantable(p, owner, t.Role); err != nil {
			return err
		}
		if err := quota.Check(ctx, tx, owner, quota.Tokens, 1); err != nil {
			return err
		}
	}
	others, err := tx.Tokens().APITokens(ctx, owner.ID, store.Whole())
	if err != nil {
		return err
	}
	for _, other := range others {
		if other.Name == t.Name && other.ValidAt(s.cfg.Now()) {
			return fmt.Errorf("token %q: %w", t.Name, store.ErrExists)
		}
	}
	return nil
}

func checkAPIToken(tenant string, req *CreateAPIToken) error {
	if err := fleet.CheckName("name", req.Name); err != nil {
		return err
	}
	if req.ExpiresIn < 0 || req.ExpiresIn > maxExpiry {
		return fleet.Invalid("expiresIn", "a token expires within %d days, or with 0 never", int(maxExpiry.Hours()/24))
	}
	if tenant != "" {
		return checkRole(req.Role)
	}
	if req.Role = cmp.Or(req.Role, fleet.RoleFleetAdmin); req.Role != fleet.RoleFleetAdmin {
		return fleet.Invalid("role", "a token of the fleet has the role %s: create a token of a tenant for %q", fleet.RoleFleetAdmin, req.Role)
	}
	return nil
}

// RevokeAPIToken revokes a token. The last one of a fleet admin is kept: without it nobody could create
// another.
func (s *Service) RevokeAPIToken(ctx context.Context, p auth.Principal, tenant string, id fleet.TokenID) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		t, err := tokenOwner(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		token, err := tx.Tokens().APIToken(ctx, t.ID, id)
		if err == nil && token.Subject != "" {
			err = store.ErrNotFound // a session: see EndSessions
		}
		if err != nil {
			return fmt.Errorf("token %q: %w", id, err)
		}
		if !token.RevokedAt.IsZero() {
			return nil
		}
		if err := s.keepOne(ctx, tx, token); err != nil {
			return err
		}
		if err := tx.Tokens().RevokeAPIToken(ctx, t.ID, id, s.cfg.Now()); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, tokenEvent("token.revoke", token))
	})
}

// keepOne refuses to revoke the last valid token of a fleet admin.
func (s *Service) keepOne(ctx context.Context, tx store.Tx, token fleet.APIToken) error {
	now := s.cfg.Now()
	if token.TenantID != "" || !token.ValidAt(now) {
		return nil
	}
	tokens, err := tx.Tokens().APITokens(ctx, "", store.Whole())
	if err != nil {
		return err
	}
	for _, other := range tokens {
		if other.ID != token.ID && other.Role == fleet.RoleFleetAdmin && other.ValidAt(now) {
			return nil
		}
	}
	return fleet.Conflict("%q is the last token of a fleet admin: create another one first", token.Name)
}

func tokenEvent(action string, t fleet.APIToken) fleet.AuditEvent {
	detail := "role " + string(t.Role)
	if !t.ExpiresAt.IsZero() {
		detail += ", until " + t.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return fleet.AuditEvent{TenantID: t.TenantID, Action: action, Kind: "token", Name: t.Name, ID: string(t.ID), Detail: detail}
}
