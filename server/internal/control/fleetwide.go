package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/listing"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// maxReason limits the reason of a suspension.
const maxReason = 1000

// settleChunk is how many deployments are settled in one transaction after a suspension: the writer is never
// blocked for long, even in a large fleet.
const settleChunk = 100

// suspension returns a suspension by p from now on.
func (s *Service) suspension(p auth.Principal, reason string) fleet.Suspension {
	return fleet.Suspension{At: s.cfg.Now(), By: p.Name, Reason: reason}
}

// suspended returns was, or a new suspension by p if its reason differs.
func (s *Service) suspended(was fleet.Suspension, p auth.Principal, reason string) (fleet.Suspension, bool) {
	if was.Active() && was.Reason == reason {
		return was, false
	}
	return s.suspension(p, reason), true
}

func checkReason(reason string) error {
	if len(reason) > maxReason {
		return fleet.Invalid("reason", "a reason has at most %d characters", maxReason)
	}
	return nil
}

// Fleet returns the state of the whole fleet, for fleet admins.
func (s *Service) Fleet(ctx context.Context, p auth.Principal) (FleetView, error) {
	var out FleetView
	if err := fleetAdmin(p); err != nil {
		return out, err
	}
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		if out.Settings, err = tx.Settings().Get(ctx); err != nil {
			return err
		}
		tenants, err := listing.Tenants(ctx, tx)
		if err != nil {
			return err
		}
		for _, t := range tenants {
			if err := out.add(ctx, tx, t.ID); err != nil {
				return fmt.Errorf("counting the resources of tenant %q: %w", t.Name, err)
			}
		}
		return nil
	})
	return out, err
}

func (v *FleetView) add(ctx context.Context, tx store.Tx, tenant fleet.TenantID) error {
	connected := true
	agents, err := tx.Agents().Count(ctx, tenant)
	if err != nil {
		return err
	}
	here, err := listing.Agents(ctx, tx, tenant, store.AgentFilter{Connected: &connected})
	if err != nil {
		return err
	}
	deployments, err := tx.Deployments().Count(ctx, tenant)
	if err != nil {
		return err
	}
	targets, err := tx.Targets().Count(ctx, tenant)
	v.Agents += agents
	v.Connected += len(here)
	v.Deployments += deployments
	v.Targets += targets
	return err
}

// Freeze suspends the whole fleet. Running workloads are not affected, and drift is corrected.
func (s *Service) Freeze(ctx context.Context, p auth.Principal, reason string) (fleet.Settings, error) {
	if err := fleetAdmin(p); err != nil {
		return fleet.Settings{}, err
	}
	if err := checkReason(reason); err != nil {
		return fleet.Settings{}, err
	}
	var out fleet.Settings
	err := s.store.Update(ctx, func(tx store.Tx) (err error) {
		if out, err = tx.Settings().Get(ctx); err != nil {
			return err
		}
		var fresh bool
		if out.Suspension, fresh = s.suspended(out.Suspension, p, reason); !fresh {
			return nil
		}
		if err := tx.Settings().SetSuspension(ctx, out.Suspension); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, fleet.AuditEvent{Action: "fleet.freeze", Kind: "fleet", Detail: reason})
	})
	return out, err
}

// Unfreeze ends the freeze and sends the newest state to every target.
func (s *Service) Unfreeze(ctx context.Context, p auth.Principal) (fleet.Settings, error) {
	if err := fleetAdmin(p); err != nil {
		return fleet.Settings{}, err
	}
	var out fleet.Settings
	err := s.store.Update(ctx, func(tx store.Tx) (err error) {
		if out, err = tx.Settings().Get(ctx); err != nil || !out.Suspension.Active() {
			return err
		}
		out.Suspension = fleet.Suspension{}
		if err := tx.Settings().SetSuspension(ctx, out.Suspension); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, fleet.AuditEvent{Action: "fleet.unfreeze", Kind: "fleet"})
	})
	if err != nil {
		return out, err
	}
	return out, s.settleFleet(ctx) // also if it was ended before: settling may have been interrupted then
}

// settleFleet settles every deployment, tenant by tenant.
func (s *Service) settleFleet(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // the work continues if the caller disconnects
	var tenants []fleet.Tenant
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		tenants, err = listing.Tenants(ctx, tx)
		return err
	})
	for _, t := range tenants {
		err = errors.Join(err, s.settleTenant(ctx, t.ID)) // a failure does not affect the others
	}
	return err
}

// settleTenant settles every deployment of a tenant, and those of others in its environments.
func (s *Service) settleTenant(ctx context.Context, tenant fleet.TenantID) error {
	ctx = context.WithoutCancel(ctx)
	var concerned []deploymentKey
	err := s.store.View(ctx, func(tx store.Tx) error {
		own, err := listing.Deployments(ctx, tx, tenant)
		if err != nil {
			return err
		}
		concerned = keysOf(own)
		given, err := tx.Grants().Given(ctx, tenant, store.Whole())
		if err != nil {
			return err
		}
		for _, g := range given {
			users, err := tx.Deployments().OfEnvironmentAllTenants(ctx, g.EnvironmentID)
			if err != nil {
				return err
			}
			for _, d := range users {
				if d.TenantID == g.Grantee {
					concerned = append(concerned, deploymentKey{d.TenantID, d.ID})
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.settleAll(ctx, concerned)
}

// deploymentKey identifies a deployment in a later transaction.
type deploymentKey struct {
	tenant fleet.TenantID
	id     fleet.DeploymentID
}

func keysOf(deployments []fleet.Deployment) []deploymentKey {
	out := make([]deploymentKey, 0, len(deployments))
	for _, d := range deployments {
		if d.DeletedAt.IsZero() {
			out = append(out, deploymentKey{d.TenantID, d.ID})
		}
	}
	return out
}

// settleAll settles deployments in chunks. It continues if the caller disconnects: a committed resume must
// reach all targets.
func (s *Service) settleAll(ctx context.Context, keys []deploymentKey) error {
	ctx = context.WithoutCancel(ctx)
	var failed error
	for len(keys) > 0 {
		chunk := keys[:min(settleChunk, len(keys))]
		keys = keys[len(chunk):]
		if s.settleTogether(ctx, chunk) == nil {
			continue
		}
		for _, key := range chunk { // one by one, so that a failure does not affect the others
			failed = errors.Join(failed, s.settleTogether(ctx, []deploymentKey{key}))
		}
	}
	if failed != nil {
		return fmt.Errorf("settling deployments: %w", failed)
	}
	return nil
}

func (s *Service) settleTogether(ctx context.Context, keys []deploymentKey) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		for _, key := range keys {
			if err := s.settleByKey(ctx, tx, key); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Service) settleByKey(ctx context.Context, tx store.Tx, key deploymentKey) error {
	d, err := tx.Deployments().Get(ctx, key.tenant, key.id)
	if errors.Is(err, store.ErrNotFound) || (err == nil && !d.DeletedAt.IsZero()) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	if err := s.planner.Reconcile(ctx, tx, d); err != nil {
		return fmt.Errorf("deployment %q: %w", d.Name, err)
	}
	return nil
}
