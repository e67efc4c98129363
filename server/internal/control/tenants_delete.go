package control

import (
	"context"
	"errors"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// DeleteTenant removes a tenant that has only its default environment, its members, its tokens, and its logs.
// Anything else is a ConflictError: deleting a tenant never affects clusters.
func (s *Service) DeleteTenant(ctx context.Context, p auth.Principal, name string, match Match) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		t, err := ownedByFleet(ctx, tx, p, name)
		if err != nil {
			return err
		}
		if err := match.checkState(TenantState(t)); err != nil {
			return err
		}
		if err := checkOwnerDeletes(ctx, tx, p, resource{t.ID, fleet.OwnedTenant, string(t.ID), t.Name}); err != nil {
			return err
		}
		if err := s.checkEmpty(ctx, tx, t); err != nil {
			return err
		}
		if err := dropLeavings(ctx, tx, t); err != nil {
			return err
		}
		if err := tx.Tenants().Delete(ctx, t.ID); errors.Is(err, store.ErrExists) {
			return fleet.Conflict("tenant %q is not empty: delete its resources first", t.Name)
		} else if err != nil {
			return err
		}
		// The log of the tenant is deleted with it: the fleet keeps this record.
		e := tenantEvent("tenant.delete", t, "")
		e.TenantID = ""
		return s.audit(ctx, tx, p, e)
	})
}

func (s *Service) checkEmpty(ctx context.Context, tx store.Tx, t fleet.Tenant) error {
	var left []string
	note := func(n int, what string, err error) error {
		if n > 0 {
			left = append(left, wording.Count(n, what))
		}
		return err
	}
	// Deployments that are being deleted count too: their tombstones are not carried out yet.
	deployments, err := tx.Deployments().List(ctx, t.ID, store.DeploymentFilter{Page: store.Page{Limit: 1}})
	if err != nil {
		return err
	}
	if len(deployments) > 0 {
		left = append(left, "deployments")
	}
	agents, err := tx.Agents().Count(ctx, t.ID)
	if err := note(agents, "agent", err); err != nil {
		return err
	}
	environments, err := tx.Environments().List(ctx, t.ID, store.Page{})
	others := 0
	for _, e := range environments {
		if e.Name != fleet.DefaultEnvironment {
			others++
		}
	}
	if err := note(others, "environment", err); err != nil {
		return err
	}
	repositories, err := tx.Repositories().Count(ctx, t.ID)
	if err := note(repositories, "repository", err); err != nil {
		return err
	}
	credentials, err := tx.Credentials().List(ctx, t.ID, store.Page{})
	if err := note(len(credentials), "credential", err); err != nil {
		return err
	}
	given, err := tx.Grants().Given(ctx, t.ID, store.Whole())
	if err := note(len(given), "grant to other tenants", err); err != nil {
		return err
	}
	if len(left) > 0 {
		return fleet.Conflict("tenant %q still has %s: delete that first", t.Name, strings.Join(left, ", "))
	}
	return nil
}

// dropLeavings removes what every tenant has: the default environment, and received grants.
func dropLeavings(ctx context.Context, tx store.Tx, t fleet.Tenant) error {
	received, err := tx.Grants().To(ctx, t.ID, store.Whole())
	if err != nil {
		return err
	}
	for _, g := range received {
		if err := tx.Grants().Delete(ctx, g.TenantID, g.ID); err != nil {
			return err
		}
	}
	env, err := tx.Environments().ByName(ctx, t.ID, fleet.DefaultEnvironment)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := tx.Environments().Delete(ctx, t.ID, env.ID); errors.Is(err, store.ErrExists) {
		return fleet.Conflict("deployments of other tenants still refer to environment %q of tenant %q", env.Name, t.Name)
	} else if err != nil {
		return err
	}
	return nil
}
