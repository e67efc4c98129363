package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Grants lists the grants that a tenant has given and those that it was given. The environment of one
// that it was given reads "owner/name": the name under which it can deploy there.
func (s *Service) Grants(ctx context.Context, p auth.Principal, tenant string) (given, received []fleet.Grant, err error) {
	err = s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		if given, err = tx.Grants().Given(ctx, t.ID); err != nil {
			return err
		}
		if received, err = tx.Grants().To(ctx, t.ID); err != nil {
			return err
		}
		for i, g := range received {
			owner, err := tx.Tenants().Get(ctx, g.TenantID)
			if err != nil {
				return err
			}
			received[i].Environment = owner.Name + "/" + g.Environment
		}
		return nil
	})
	return given, received, err
}

// CreateGrant lets another tenant deploy to an environment, within limits. Deployments that were there
// by an earlier grant are taken up again.
func (s *Service) CreateGrant(ctx context.Context, p auth.Principal, tenant string, req CreateGrant) (fleet.Grant, error) {
	limits, err := checkLimits(req.Limits)
	if err != nil {
		return fleet.Grant{}, err
	}
	var out fleet.Grant
	err = s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		env, err := environmentByName(ctx, tx, t.ID, req.Environment)
		if errors.Is(err, store.ErrNotFound) {
			return fleet.Invalid("environment", "there is no environment %q in tenant %q", req.Environment, tenant)
		}
		if err != nil {
			return err
		}
		grantee, err := granteeOf(ctx, tx, t, req.Grantee)
		if err != nil {
			return err
		}
		out = fleet.Grant{
			ID: fleet.NewGrantID(), TenantID: t.ID, EnvironmentID: env.ID, Environment: env.Name,
			Grantee: grantee.ID, GranteeName: grantee.Name, Limits: limits, CreatedAt: s.cfg.Now(),
		}
		if err := tx.Grants().Create(ctx, out); err != nil {
			return fmt.Errorf("grant of environment %q to tenant %q: %w", env.Name, grantee.Name, err)
		}
		if err := s.placeGrant(ctx, tx, env, out); err != nil {
			return err
		}
		return s.auditGrant(ctx, tx, p, "grant.create", out)
	})
	if err != nil {
		return fleet.Grant{}, err
	}
	return out, nil
}

func granteeOf(ctx context.Context, tx store.Tx, t fleet.Tenant, name string) (fleet.Tenant, error) {
	grantee, err := tx.Tenants().ByName(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return fleet.Tenant{}, fleet.Invalid("grantee", "there is no tenant %q", name)
	}
	if err == nil && grantee.ID == t.ID {
		return fleet.Tenant{}, fleet.Invalid("grantee", "the environment is tenant %q's own already", name)
	}
	return grantee, err
}

func checkLimits(l fleet.Limits) (fleet.Limits, error) {
	if err := l.Check("limits"); err != nil {
		return fleet.Limits{}, err
	}
	return fleet.Limits{Namespaces: sorted(l.Namespaces), Kinds: sorted(l.Kinds)}, nil
}

// placeGrant places the grantee's deployments in the environment of a grant.
func (s *Service) placeGrant(ctx context.Context, tx store.Tx, env fleet.Environment, g fleet.Grant) error {
	return s.placeWithin(ctx, tx, env, func(d fleet.Deployment) bool { return d.TenantID == g.Grantee })
}

// auditGrant records a grant at both tenants: it is a door between them.
func (s *Service) auditGrant(ctx context.Context, tx store.Tx, p auth.Principal, action string, g fleet.Grant) error {
	e := fleet.AuditEvent{
		TenantID: g.TenantID, Action: action, Kind: "grant", Name: g.Environment, ID: string(g.ID),
		Detail: fmt.Sprintf("to tenant %s, namespaces %v, kinds %v", g.GranteeName, g.Limits.Namespaces, g.Limits.Kinds),
	}
	if err := s.audit(ctx, tx, p, e); err != nil {
		return err
	}
	e.TenantID = g.Grantee
	return s.audit(ctx, tx, p, e)
}

// UpdateGrant changes the limits. They hold at once, for what is there already too.
func (s *Service) UpdateGrant(ctx context.Context, p auth.Principal, tenant string, id fleet.GrantID, l fleet.Limits) (fleet.Grant, error) {
	limits, err := checkLimits(l)
	if err != nil {
		return fleet.Grant{}, err
	}
	var out fleet.Grant
	err = s.store.Update(ctx, func(tx store.Tx) error {
		g, err := ownGrant(ctx, tx, p, tenant, id)
		if err != nil {
			return err
		}
		out = g
		if slices.Equal(g.Limits.Namespaces, limits.Namespaces) && slices.Equal(g.Limits.Kinds, limits.Kinds) {
			return nil
		}
		out.Limits = limits
		if err := tx.Grants().Update(ctx, out); err != nil {
			return err
		}
		if err := s.renewTargets(ctx, tx, id); err != nil {
			return err
		}
		env, err := tx.Environments().Get(ctx, g.TenantID, g.EnvironmentID)
		if err != nil {
			return err
		}
		if err := s.placeGrant(ctx, tx, env, out); err != nil {
			return err
		}
		return s.auditGrant(ctx, tx, p, "grant.update", out)
	})
	if err != nil {
		return fleet.Grant{}, err
	}
	return out, nil
}

// renewTargets gives the targets of a grant a new version, so that their agents hear of its limits even
// when nothing else is new.
func (s *Service) renewTargets(ctx context.Context, tx store.Tx, id fleet.GrantID) error {
	targets, err := tx.Targets().OfGrantAllTenants(ctx, id)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if left(t) || t.Desired.Digest == "" || s.behind(t) { // the last hears of it once its source was read anew
			continue
		}
		again := t.Desired
		again.Version = s.next(newest(t))
		if err := tx.Targets().SetDesired(ctx, t.TenantID, t.ID, again); err != nil {
			return err
		}
	}
	return nil
}

// ownGrant finds a grant that the tenant has given and p may change. One that it was given is only to
// be read.
func ownGrant(ctx context.Context, tx store.Tx, p auth.Principal, tenant string, id fleet.GrantID) (fleet.Grant, error) {
	t, err := administrable(ctx, tx, p, tenant)
	if err != nil {
		return fleet.Grant{}, err
	}
	g, err := tx.Grants().Get(ctx, t.ID, id)
	if err == nil && g.TenantID != t.ID {
		return fleet.Grant{}, fmt.Errorf("grant %q was given to tenant %q by another one, which alone can change it: %w", id, tenant, auth.ErrForbidden)
	}
	if err != nil {
		return fleet.Grant{}, fmt.Errorf("grant %q: %w", id, err)
	}
	return g, nil
}

// DeleteGrant revokes a grant. The targets that were there by it are detached: nothing more is synced,
// and nothing is deleted. Deletions that were asked for before go on.
func (s *Service) DeleteGrant(ctx context.Context, p auth.Principal, tenant string, id fleet.GrantID) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		g, err := ownGrant(ctx, tx, p, tenant, id)
		if err != nil {
			return err
		}
		targets, err := tx.Targets().OfGrantAllTenants(ctx, id)
		if err != nil {
			return err
		}
		for _, t := range targets {
			if err := s.release(ctx, tx, t, tenant+"/"+g.Environment); err != nil {
				return fmt.Errorf("detaching deployment %q: %w", t.DeploymentName, err)
			}
		}
		if err := tx.Grants().Delete(ctx, g.TenantID, id); err != nil {
			return err
		}
		return s.auditGrant(ctx, tx, p, "grant.delete", g)
	})
}

// release parts a target from the grant that it was there by.
func (s *Service) release(ctx context.Context, tx store.Tx, t fleet.Target, environment string) error {
	if left(t) {
		t.GrantID = ""
		return tx.Targets().SetPlace(ctx, t)
	}
	if err := s.detach(ctx, tx, t, fmt.Sprintf("environment %q is no longer granted to this tenant", environment), false); err != nil {
		return err
	}
	d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
	if err != nil {
		return err
	}
	return s.settleOne(ctx, tx, d, t.ID)
}
