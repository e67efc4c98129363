package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/placement"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// GrantView is a grant for one of its two tenants.
type GrantView struct {
	fleet.Grant
	Received bool
}

// The two halves of a listing of grants.
const (
	GrantsGiven    = "given"
	GrantsReceived = "received"
)

// Grants lists the grants that a tenant has given, by environment and grantee, and then those that it has
// received, by environment and owner. A page starts after the grant AfterID, "environment/other tenant", of the
// half After.
func (s *Service) Grants(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]GrantView, error) {
	var out []GrantView
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		limit := cmp.Or(page.Limit, defaultPage)
		after := store.Page{Limit: limit}
		after.After, after.AfterID, _ = strings.Cut(page.AfterID, "/")
		if page.After != GrantsReceived {
			given, err := tx.Grants().Given(ctx, t.ID, after)
			if err != nil {
				return err
			}
			for _, g := range given {
				out = append(out, GrantView{Grant: g})
			}
			after = store.Page{Limit: limit - len(given)}
		}
		if after.Limit <= 0 {
			return nil
		}
		received, err := tx.Grants().To(ctx, t.ID, after)
		for _, g := range received {
			out = append(out, GrantView{Grant: g, Received: true})
		}
		return err
	})
	return out, err
}

// Grant returns one grant that a tenant has given or received.
func (s *Service) Grant(ctx context.Context, p auth.Principal, tenant string, id fleet.GrantID) (GrantView, error) {
	var out GrantView
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		g, err := tx.Grants().Get(ctx, t.ID, id)
		if err != nil {
			return fmt.Errorf("grant %q: %w", id, err)
		}
		out = GrantView{Grant: g, Received: g.TenantID != t.ID}
		return nil
	})
	return out, err
}

// CreateGrant lets another tenant deploy to an environment, within limits. Deployments of an earlier grant are
// attached again.
func (s *Service) CreateGrant(ctx context.Context, p auth.Principal, tenant string, req CreateGrant) (fleet.Grant, error) {
	terms, err := checkTerms(UpdateGrant{req.Limits, &req.ServiceAccount})
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
		if err := notOfConfiguration(env); err != nil {
			return err
		}
		grantee, err := granteeOf(ctx, tx, p, t, req.Grantee)
		if err != nil {
			return err
		}
		out = fleet.Grant{
			ID: fleet.NewGrantID(), TenantID: t.ID, EnvironmentID: env.ID, Environment: env.Name, OwnerName: t.Name,
			Grantee: grantee.ID, GranteeName: grantee.Name, Limits: terms.Limits, ServiceAccount: req.ServiceAccount, CreatedAt: s.cfg.Now(),
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

// granteeOf finds the tenant of a grant. A tenant that the caller may not see is reported as missing: otherwise
// grants would reveal the names of tenants.
func granteeOf(ctx context.Context, tx store.Tx, p auth.Principal, t fleet.Tenant, name string) (fleet.Tenant, error) {
	grantee, err := readable(ctx, tx, p, name)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, auth.ErrForbidden) {
		return fleet.Tenant{}, fleet.Invalid("grantee", "there is no tenant %q that you may see: a grant requires a role in both tenants, or the fleet-admin role", name)
	}
	if err == nil && grantee.ID == t.ID {
		return fleet.Tenant{}, fleet.Invalid("grantee", "tenant %q owns the environment already", name)
	}
	return grantee, err
}

func checkTerms(terms UpdateGrant) (UpdateGrant, error) {
	l := terms.Limits
	if err := l.Check("limits"); err != nil {
		return UpdateGrant{}, err
	}
	terms.Limits = fleet.Limits{Namespaces: sorted(l.Namespaces), Kinds: sorted(l.Kinds)}
	if terms.ServiceAccount == nil {
		return terms, nil
	}
	return terms, fleet.CheckServiceAccount("serviceAccount", *terms.ServiceAccount)
}

// placeGrant places the deployments of the grantee in the environment of a grant.
func (s *Service) placeGrant(ctx context.Context, tx store.Tx, env fleet.Environment, g fleet.Grant) error {
	return s.placer.PlaceWithin(ctx, tx, env, func(d fleet.Deployment) bool { return d.TenantID == g.Grantee })
}

// auditGrant records a grant in both tenants, because it affects both.
func (s *Service) auditGrant(ctx context.Context, tx store.Tx, p auth.Principal, action string, g fleet.Grant) error {
	detail := fmt.Sprintf("to tenant %s; namespaces: %s; kinds: %s", g.GranteeName, listWords(g.Limits.Namespaces, "all"), listWords(g.Limits.Kinds, "all"))
	if g.ServiceAccount != "" {
		detail += "; as service account " + g.ServiceAccount
	}
	e := fleet.AuditEvent{TenantID: g.TenantID, Action: action, Kind: "grant", Name: g.Environment, ID: string(g.ID), Detail: detail}
	if err := s.audit(ctx, tx, p, e); err != nil {
		return err
	}
	e.TenantID = g.Grantee
	return s.audit(ctx, tx, p, e)
}

// UpdateGrant replaces the terms. They apply immediately, also to existing targets.
func (s *Service) UpdateGrant(ctx context.Context, p auth.Principal, tenant string, id fleet.GrantID, terms UpdateGrant, match Match) (fleet.Grant, error) {
	terms, err := checkTerms(terms)
	if err != nil {
		return fleet.Grant{}, err
	}
	var out fleet.Grant
	err = s.store.Update(ctx, func(tx store.Tx) error {
		g, err := ownGrant(ctx, tx, p, tenant, id)
		if err != nil {
			return err
		}
		if err := match.checkState(GrantState(g)); err != nil {
			return err
		}
		account := g.ServiceAccount
		if terms.ServiceAccount != nil {
			account = *terms.ServiceAccount
		}
		out = g
		if slices.Equal(g.Limits.Namespaces, terms.Limits.Namespaces) && slices.Equal(g.Limits.Kinds, terms.Limits.Kinds) &&
			g.ServiceAccount == account {
			return nil
		}
		out.Limits, out.ServiceAccount = terms.Limits, account
		if err := tx.Grants().Update(ctx, out); err != nil {
			return err
		}
		if err := s.renewTargets(ctx, tx, out); err != nil {
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

// renewTargets gives the targets of a grant a new version, so that their agents get its terms even if nothing
// else is new, or may be sent.
func (s *Service) renewTargets(ctx context.Context, tx store.Tx, g fleet.Grant) error {
	targets, err := tx.Targets().OfGrantAllTenants(ctx, g.ID)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if placement.HasLeft(t) || t.Desired.Digest == "" || s.planner.Ahead(t) { // the last one gets it after its source is read again
			continue
		}
		again := t.Desired
		again.Version, again.Policy = s.planner.Next(rollout.Newest(t)), g.Applied(t.Desired.Policy)
		if err := tx.Targets().SetDesired(ctx, t.TenantID, t.ID, again); err != nil {
			return err
		}
	}
	return nil
}

// ownGrant finds a grant that the tenant has given and p may change. A received one is read-only.
func ownGrant(ctx context.Context, tx store.Tx, p auth.Principal, tenant string, id fleet.GrantID) (fleet.Grant, error) {
	t, err := administrable(ctx, tx, p, tenant)
	if err != nil {
		return fleet.Grant{}, err
	}
	g, err := tx.Grants().Get(ctx, t.ID, id)
	if err == nil && g.TenantID != t.ID {
		return fleet.Grant{}, fmt.Errorf("grant %q was received by tenant %q; only the owner can change it: %w", id, tenant, auth.ErrForbidden)
	}
	if err != nil {
		return fleet.Grant{}, fmt.Errorf("grant %q: %w", id, err)
	}
	return g, nil
}

// DeleteGrant revokes a grant. Its targets are detached: nothing more is synced, and nothing is deleted.
// Earlier deletions continue.
func (s *Service) DeleteGrant(ctx context.Context, p auth.Principal, tenant string, id fleet.GrantID, match Match) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		g, err := ownGrant(ctx, tx, p, tenant, id)
		if err != nil {
			return err
		}
		if err := match.checkState(GrantState(g)); err != nil {
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

// release detaches a target from its grant.
func (s *Service) release(ctx context.Context, tx store.Tx, t fleet.Target, environment string) error {
	if placement.HasLeft(t) {
		t.GrantID = ""
		return tx.Targets().SetPlace(ctx, t)
	}
	if err := s.placer.Detach(ctx, tx, t, fmt.Sprintf("environment %q is no longer granted to this tenant", environment), false); err != nil {
		return err
	}
	d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
	if err != nil {
		return err
	}
	return s.placer.ReconcileOne(ctx, tx, d, t.ID)
}
