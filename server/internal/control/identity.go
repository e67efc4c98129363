package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// touchEvery is the resolution of the recorded last use of a token.
const touchEvery = time.Hour

// Authenticate returns the caller of an API token or a session, with its current permissions: a changed
// membership applies from the next call. It fails with auth.ErrUnauthenticated.
func (s *Service) Authenticate(ctx context.Context, token string) (auth.Principal, error) {
	return s.authenticate(ctx, token, false)
}

// Reauthenticate is Authenticate for a request that is open: the expiry of a kube token does not end it.
func (s *Service) Reauthenticate(ctx context.Context, token string) (auth.Principal, error) {
	return s.authenticate(ctx, token, true)
}

func (s *Service) authenticate(ctx context.Context, token string, open bool) (auth.Principal, error) {
	hash, kube := auth.Hash(token), strings.HasPrefix(token, auth.KubeTokenPrefix)
	if kube {
		of, expires, err := s.parseKubeToken(token)
		if err != nil || !open && !s.cfg.Now().Before(expires) {
			return auth.Principal{}, auth.ErrUnauthenticated
		}
		hash = of
	}
	var p auth.Principal
	err := s.store.View(ctx, func(tx store.Tx) error {
		found, err := tx.Tokens().APITokenByHash(ctx, hash)
		if err != nil {
			return err
		}
		if !found.ValidAt(s.cfg.Now()) {
			return store.ErrNotFound
		}
		p, err = principal(ctx, tx, found)
		p.TokenHash, p.Kube = hash, kube
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return auth.Principal{}, auth.ErrUnauthenticated
	}
	return p, err
}

// principal returns the caller of a token. The roles of a person come from their memberships and those of their
// groups; the higher one counts.
func principal(ctx context.Context, tx store.Tx, t fleet.APIToken) (auth.Principal, error) {
	p := auth.Principal{Name: t.Name, TokenID: t.ID, FleetAdmin: t.FleetAdmin, Roles: map[fleet.TenantID]fleet.Role{}}
	if t.Subject == "" {
		p.Subject = fleet.AccessToken
		p.FleetAdmin = t.Role == fleet.RoleFleetAdmin
		if !p.FleetAdmin {
			p.Roles[t.TenantID] = t.Role
		}
		return p, nil
	}
	p.Session, p.Name, p.Subject, p.Groups = true, t.Subject, fleet.AccessPerson, t.Groups
	members, err := tx.Members().OfAllTenants(ctx, t.Subject, t.Groups)
	if err != nil {
		return auth.Principal{}, fmt.Errorf("reading the memberships of %q: %w", t.Subject, err)
	}
	for _, m := range members {
		p.Roles[m.TenantID] = auth.Better(p.Roles[m.TenantID], m.Role)
	}
	return p, nil
}

// AuthenticateAgent returns the agent of a token. It fails with auth.ErrUnauthenticated.
func (s *Service) AuthenticateAgent(ctx context.Context, token string) (fleet.Agent, fleet.Tenant, error) {
	agent, tenant, _, err := s.AuthenticateAgentToken(ctx, token)
	return agent, tenant, err
}

// AuthenticateAgentToken is AuthenticateAgent that also returns the token.
func (s *Service) AuthenticateAgentToken(ctx context.Context, token string) (fleet.Agent, fleet.Tenant, fleet.AgentToken, error) {
	var agent fleet.Agent
	var tenant fleet.Tenant
	var found fleet.AgentToken
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		if found, err = tx.Tokens().AgentTokenByHashAllTenants(ctx, auth.Hash(token)); err != nil {
			return err
		}
		if !found.Valid() {
			return store.ErrNotFound
		}
		if agent, err = tx.Agents().Get(ctx, found.TenantID, found.AgentID); err != nil {
			return err
		}
		tenant, err = tx.Tenants().Get(ctx, found.TenantID)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		err = auth.ErrUnauthenticated
	}
	if err == nil {
		err = s.touch(ctx, found)
	}
	if err != nil {
		return fleet.Agent{}, fleet.Tenant{}, fleet.AgentToken{}, err
	}
	return agent, tenant, found, nil
}

// touch records the use of a token, rarely enough to cost nothing.
func (s *Service) touch(ctx context.Context, t fleet.AgentToken) error {
	now := s.cfg.Now()
	if now.Sub(t.LastUsed) < touchEvery {
		return nil
	}
	err := s.store.Update(ctx, func(tx store.Tx) error {
		return tx.Tokens().TouchAgentToken(ctx, t.TenantID, t.ID, now)
	})
	if errors.Is(err, store.ErrNotFound) {
		return auth.ErrUnauthenticated // deleted since it was looked up
	}
	return err
}

// readable finds a tenant that p may read. Other tenants do not exist for p.
func readable(ctx context.Context, tx store.Tx, p auth.Principal, name string) (fleet.Tenant, error) {
	t, err := tx.Tenants().ByName(ctx, name)
	if err == nil && !p.MayRead(t.ID) {
		err = store.ErrNotFound
	}
	if err != nil {
		return fleet.Tenant{}, fmt.Errorf("tenant %q: %w", name, err)
	}
	return t, nil
}

// deployable finds a tenant whose deployments p may change.
func deployable(ctx context.Context, tx store.Tx, p auth.Principal, name string) (fleet.Tenant, error) {
	return having(ctx, tx, p, name, fleet.RoleDeployer)
}

// administrable finds a tenant in which p may change everything.
func administrable(ctx context.Context, tx store.Tx, p auth.Principal, name string) (fleet.Tenant, error) {
	return having(ctx, tx, p, name, fleet.RoleAdmin)
}

func having(ctx context.Context, tx store.Tx, p auth.Principal, name string, role fleet.Role) (fleet.Tenant, error) {
	t, err := readable(ctx, tx, p, name)
	if err != nil {
		return fleet.Tenant{}, err
	}
	if !p.Has(t.ID, role) {
		return fleet.Tenant{}, &auth.RoleError{Needs: role, Tenant: name, Has: p.Roles[t.ID]}
	}
	return t, nil
}

// fleetAdmin returns auth.ErrForbidden unless p is a fleet admin.
func fleetAdmin(p auth.Principal) error {
	if !p.FleetAdmin {
		return &auth.RoleError{Needs: fleet.RoleFleetAdmin}
	}
	return nil
}
