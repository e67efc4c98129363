package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// defaultPage is the default page size, as in the store.
const defaultPage = 100

// Tenants lists the tenants that p may read, by name.
func (s *Service) Tenants(ctx context.Context, p auth.Principal, page store.Page) ([]fleet.Tenant, error) {
	var out []fleet.Tenant
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		if p.FleetAdmin {
			out, err = tx.Tenants().List(ctx, page)
			return err
		}
		out, err = ownTenants(ctx, tx, p, page)
		return err
	})
	return out, err
}

func ownTenants(ctx context.Context, tx store.Tx, p auth.Principal, page store.Page) ([]fleet.Tenant, error) {
	var out []fleet.Tenant
	for id := range p.Roles {
		t, err := tx.Tenants().Get(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted since p was authenticated
		}
		if err != nil {
			return nil, err
		}
		if p.MayRead(id) && t.Name > page.After {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b fleet.Tenant) int { return cmp.Compare(a.Name, b.Name) })
	return out[:min(len(out), cmp.Or(page.Limit, defaultPage))], nil
}

// Tenant returns one tenant by name.
func (s *Service) Tenant(ctx context.Context, p auth.Principal, name string) (fleet.Tenant, error) {
	var out fleet.Tenant
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		out, err = readable(ctx, tx, p, name)
		return err
	})
	return out, err
}

// CreateTenant creates a tenant with the environment that selects all of its agents.
func (s *Service) CreateTenant(ctx context.Context, p auth.Principal, req CreateTenant) (fleet.Tenant, error) {
	if err := fleetAdmin(p); err != nil {
		return fleet.Tenant{}, err
	}
	if err := fleet.CheckName("name", req.Name); err != nil {
		return fleet.Tenant{}, err
	}
	if err := checkQuota(req.Quota); err != nil {
		return fleet.Tenant{}, err
	}
	out := fleet.Tenant{ID: fleet.NewTenantID(), Name: req.Name, Quota: req.Quota, CreatedAt: s.cfg.Now()}
	err := s.store.Update(ctx, func(tx store.Tx) error {
		if err := s.addTenant(ctx, tx, out); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, tenantEvent("tenant.create", out, ""))
	})
	if err != nil {
		return fleet.Tenant{}, err
	}
	return out, nil
}

// addTenant writes a tenant with its default environment.
func (s *Service) addTenant(ctx context.Context, tx store.Tx, t fleet.Tenant) error {
	if err := tx.Tenants().Create(ctx, t); err != nil {
		return fmt.Errorf("tenant %q: %w", t.Name, err)
	}
	return tx.Environments().Create(ctx, fleet.Environment{
		ID: fleet.NewEnvironmentID(), TenantID: t.ID, Name: fleet.DefaultEnvironment, MatchLabels: map[string]string{}, SpecRevision: 1, CreatedAt: t.CreatedAt,
	})
}

func tenantEvent(action string, t fleet.Tenant, detail string) fleet.AuditEvent {
	return fleet.AuditEvent{TenantID: t.ID, Action: action, Kind: "tenant", Name: t.Name, ID: string(t.ID), Detail: detail}
}

// ownedByFleet finds a tenant that p may change as a whole.
func ownedByFleet(ctx context.Context, tx store.Tx, p auth.Principal, name string) (fleet.Tenant, error) {
	t, err := readable(ctx, tx, p, name)
	if err != nil {
		return fleet.Tenant{}, err
	}
	return t, fleetAdmin(p)
}

// UpdateTenant changes the quota. A quota below the current numbers only refuses additions.
func (s *Service) UpdateTenant(ctx context.Context, p auth.Principal, name string, req UpdateTenant, match Match) (fleet.Tenant, error) {
	var out fleet.Tenant
	err := s.store.Update(ctx, func(tx store.Tx) (err error) {
		if out, err = ownedByFleet(ctx, tx, p, name); err != nil {
			return err
		}
		if err := match.checkState(TenantState(out)); err != nil {
			return err
		}
		if req.Quota == nil || *req.Quota == out.Quota {
			return nil
		}
		if err := checkQuota(*req.Quota); err != nil {
			return err
		}
		if err := tx.Tenants().SetQuota(ctx, out.ID, *req.Quota); err != nil {
			return err
		}
		out.Quota = *req.Quota
		return s.audit(ctx, tx, p, tenantEvent("tenant.update", out, "quota: "+quotaWords(out.Quota)))
	})
	if err != nil {
		return fleet.Tenant{}, err
	}
	return out, nil
}

// SuspendTenant suspends all deployments of a tenant.
func (s *Service) SuspendTenant(ctx context.Context, p auth.Principal, name, reason string) (fleet.Tenant, error) {
	if err := checkReason(reason); err != nil {
		return fleet.Tenant{}, err
	}
	var out fleet.Tenant
	err := s.store.Update(ctx, func(tx store.Tx) (err error) {
		if out, err = ownedByFleet(ctx, tx, p, name); err != nil {
			return err
		}
		var fresh bool
		if out.Suspension, fresh = s.suspended(out.Suspension, p, reason); !fresh {
			return nil
		}
		if err := tx.Tenants().SetSuspension(ctx, out.ID, out.Suspension); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, tenantEvent("tenant.suspend", out, reason))
	})
	if err != nil {
		return fleet.Tenant{}, err
	}
	return out, nil
}

// ResumeTenant ends the suspension and sends the newest state to every target.
func (s *Service) ResumeTenant(ctx context.Context, p auth.Principal, name string) (fleet.Tenant, error) {
	var out fleet.Tenant
	err := s.store.Update(ctx, func(tx store.Tx) (err error) {
		if out, err = ownedByFleet(ctx, tx, p, name); err != nil || !out.Suspension.Active() {
			return err
		}
		out.Suspension = fleet.Suspension{}
		if err := tx.Tenants().SetSuspension(ctx, out.ID, out.Suspension); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, tenantEvent("tenant.resume", out, ""))
	})
	if err == nil {
		err = s.settleTenant(ctx, out.ID) // also if it was ended before: settling may have been interrupted then
	}
	if err != nil {
		return fleet.Tenant{}, err
	}
	return out, nil
}
