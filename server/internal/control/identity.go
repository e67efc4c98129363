package control

import (
	"context"
	"errors"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Authenticate finds out who presents an API token. It fails with auth.ErrUnauthenticated.
func (s *Service) Authenticate(ctx context.Context, token string) (auth.Principal, error) {
	var found fleet.APIToken
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		found, err = tx.Tokens().APITokenByHash(ctx, auth.Hash(token))
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return auth.Principal{}, auth.ErrUnauthenticated
	}
	if err != nil {
		return auth.Principal{}, err
	}
	return auth.Principal{Name: found.Name, Role: found.Role}, nil
}

// AuthenticateAgent finds out which agent presents a token. It fails with auth.ErrUnauthenticated.
func (s *Service) AuthenticateAgent(ctx context.Context, token string) (fleet.Agent, fleet.Tenant, error) {
	var agent fleet.Agent
	var tenant fleet.Tenant
	err := s.store.View(ctx, func(tx store.Tx) error {
		found, err := tx.Tokens().AgentTokenByHashAllTenants(ctx, auth.Hash(token))
		if err != nil {
			return err
		}
		if !found.RevokedAt.IsZero() {
			return store.ErrNotFound
		}
		if agent, err = tx.Agents().Get(ctx, found.TenantID, found.AgentID); err != nil {
			return err
		}
		tenant, err = tenantByID(ctx, tx, found.TenantID)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return fleet.Agent{}, fleet.Tenant{}, auth.ErrUnauthenticated
	}
	return agent, tenant, err
}

func tenantByID(ctx context.Context, tx store.Tx, id fleet.TenantID) (fleet.Tenant, error) {
	tenants, err := tx.Tenants().List(ctx)
	if err != nil {
		return fleet.Tenant{}, err
	}
	for _, t := range tenants {
		if t.ID == id {
			return t, nil
		}
	}
	return fleet.Tenant{}, store.ErrNotFound
}

// readable finds a tenant that p may read. One that p may not read does not exist for p.
func readable(ctx context.Context, tx store.Tx, p auth.Principal, name string) (fleet.Tenant, error) {
	t, err := tx.Tenants().ByName(ctx, name)
	if err != nil {
		return fleet.Tenant{}, err
	}
	if !p.MayRead(t.ID) {
		return fleet.Tenant{}, store.ErrNotFound
	}
	return t, nil
}

// writable finds a tenant that p may change.
func writable(ctx context.Context, tx store.Tx, p auth.Principal, name string) (fleet.Tenant, error) {
	t, err := readable(ctx, tx, p, name)
	if err != nil {
		return fleet.Tenant{}, err
	}
	if !p.MayWrite(t.ID) {
		return fleet.Tenant{}, auth.ErrForbidden
	}
	return t, nil
}
