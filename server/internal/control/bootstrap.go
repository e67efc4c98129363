package control

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Bootstrap prepares a database before the server serves requests: the default tenant and environment and, at
// the first start or on request, an admin token, which is returned only once. It closes connections that ended
// servers left open. If several replicas start together, one creates the token.
func (s *Service) Bootstrap(ctx context.Context, newToken bool) (adminToken string, err error) {
	lock, err := s.member.AwaitLock(ctx, "bootstrap")
	if err != nil {
		return "", fmt.Errorf("preparing the database: %w", err)
	}
	defer lock.Release()
	if err := s.member.TakeAliveLock(ctx); err != nil {
		return "", fmt.Errorf("preparing the database: %w", err)
	}
	err = s.store.Update(ctx, func(tx store.Tx) error {
		adminToken = "" // this may run more than once
		if err := s.member.Join(ctx, tx); err != nil {
			return err
		}
		if err := s.readSettings(ctx, tx); err != nil {
			return err
		}
		first, err := s.firstStart(ctx, tx)
		if err != nil || (!first && !newToken) {
			return err
		}
		adminToken, err = s.newAdminToken(ctx, tx)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("preparing the database: %w", err)
	}
	return adminToken, nil
}

func (s *Service) readSettings(ctx context.Context, tx store.Tx) error {
	settings, err := tx.Settings().Get(ctx)
	if err != nil {
		return err
	}
	s.planner.SetEpoch(settings.Epoch)
	last, err := tx.Changes().Last(ctx)
	s.feed.StartAt(last)
	return err
}

// firstStart reports whether the database is empty, and creates the initial rows.
func (s *Service) firstStart(ctx context.Context, tx store.Tx) (bool, error) {
	tenants, err := tx.Tenants().List(ctx, store.Page{Limit: 1})
	if err != nil || len(tenants) > 0 {
		return false, err
	}
	tokens, err := tx.Tokens().CountAPITokens(ctx, "")
	if err != nil || tokens > 0 {
		return false, err
	}
	now := s.cfg.Now()
	tenant := fleet.Tenant{ID: fleet.NewTenantID(), Name: fleet.DefaultTenant, CreatedAt: now}
	if err := tx.Tenants().Create(ctx, tenant); err != nil {
		return false, err
	}
	return true, tx.Environments().Create(ctx, fleet.Environment{
		ID: fleet.NewEnvironmentID(), TenantID: tenant.ID, Name: fleet.DefaultEnvironment, CreatedAt: now,
	})
}

func (s *Service) newAdminToken(ctx context.Context, tx store.Tx) (string, error) {
	secret := auth.NewToken(auth.APITokenPrefix)
	now := s.cfg.Now()
	token := fleet.APIToken{
		ID: fleet.NewTokenID(), Name: "admin-" + now.UTC().Format(time.DateOnly), Role: fleet.RoleFleetAdmin,
		Hash: auth.Hash(secret), CreatedAt: now, CreatedBy: auth.System().Name,
	}
	if err := tx.Tokens().CreateAPIToken(ctx, token); err != nil {
		return "", err
	}
	return secret, s.audit(ctx, tx, auth.System(), fleet.AuditEvent{
		Action: "token.create", Kind: "token", Name: token.Name, ID: string(token.ID), Detail: "for a fleet admin, created at the start of the server",
	})
}
