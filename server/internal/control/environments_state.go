package control

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// SuspendEnvironment suspends all targets of an environment, including those of other tenants.
func (s *Service) SuspendEnvironment(ctx context.Context, p auth.Principal, tenant, name, reason string) (EnvironmentView, error) {
	if err := checkReason(reason); err != nil {
		return EnvironmentView{}, err
	}
	return s.editEnvironment(ctx, p, tenant, name, Match{}, func(tx store.Tx, _ fleet.Tenant, env fleet.Environment) error {
		var fresh bool
		if env.Suspension, fresh = s.suspended(env.Suspension, p, reason); !fresh {
			return nil
		}
		if err := tx.Environments().Update(ctx, env); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, environmentEvent("environment.suspend", env, reason))
	})
}

// ResumeEnvironment ends the suspension and sends the newest state to every target.
func (s *Service) ResumeEnvironment(ctx context.Context, p auth.Principal, tenant, name string) (EnvironmentView, error) {
	var concerned []deploymentKey
	out, err := s.editEnvironment(ctx, p, tenant, name, Match{}, func(tx store.Tx, _ fleet.Tenant, env fleet.Environment) error {
		// Also if it was ended before: settling may have been interrupted then.
		deployments, err := tx.Deployments().OfEnvironmentAllTenants(ctx, env.ID)
		if err != nil {
			return err
		}
		concerned = keysOf(deployments)
		if !env.Suspension.Active() {
			return nil
		}
		env.Suspension = fleet.Suspension{}
		if err := tx.Environments().Update(ctx, env); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, environmentEvent("environment.resume", env, ""))
	})
	if err == nil {
		err = s.settleAll(ctx, concerned)
	}
	return out, err
}

// DeleteEnvironment removes an environment without deployments and grants.
func (s *Service) DeleteEnvironment(ctx context.Context, p auth.Principal, tenant, name string, match Match) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		env, err := environmentByName(ctx, tx, t.ID, name)
		if err != nil {
			return err
		}
		if err := match.check(string(env.ID), env.SpecRevision); err != nil {
			return err
		}
		if err := checkOwnerDeletes(ctx, tx, p, environmentResource(env)); err != nil {
			return err
		}
		if err := checkUnused(ctx, tx, env); err != nil {
			return err
		}
		if err := tx.Environments().Delete(ctx, t.ID, env.ID); errors.Is(err, store.ErrExists) {
			return fleet.Conflict("environment %q is still in use: deployments that are being deleted count until their agents have deleted them", name)
		} else if err != nil {
			return err
		}
		if env.Push != nil {
			if err := tx.Credentials().Delete(ctx, t.ID, env.Push.CredentialID); err != nil {
				return err
			}
			if err := s.placer.PlacePush(ctx, tx, t.ID); err != nil { // another one may have waited for its place
				return err
			}
		}
		return s.audit(ctx, tx, p, environmentEvent("environment.delete", env, ""))
	})
}

// checkUnused lists the users of an environment. Names of other tenants' deployments are not shown.
func checkUnused(ctx context.Context, tx store.Tx, env fleet.Environment) error {
	deployments, err := tx.Deployments().OfEnvironmentAllTenants(ctx, env.ID)
	if err != nil {
		return err
	}
	pending, err := tx.PendingSpecs().OfEnvironmentAllTenants(ctx, env.ID)
	if err != nil {
		return err
	}
	for _, p := range pending {
		d, err := tx.Deployments().Get(ctx, p.TenantID, p.DeploymentID)
		if err != nil {
			return err
		}
		if d.EnvironmentID != env.ID {
			deployments = append(deployments, d)
		}
	}
	grants, err := tx.Grants().Given(ctx, env.TenantID, store.Whole())
	if err != nil {
		return err
	}
	const named = 5
	var users []string
	foreign := 0
	for _, d := range deployments {
		switch {
		case d.TenantID != env.TenantID:
			foreign++
		case len(users) < named:
			users = append(users, fmt.Sprintf("deployment %q", d.Name))
		case len(users) == named:
			users = append(users, "others")
		}
	}
	if foreign > 0 {
		users = append(users, wording.Count(foreign, "deployment of other tenants"))
	}
	for _, g := range grants {
		if g.EnvironmentID == env.ID {
			users = append(users, fmt.Sprintf("the grant to tenant %q", g.GranteeName))
		}
	}
	if len(users) > 0 {
		return fleet.Conflict("environment %q is still used by %s: move or delete them first", env.Name, strings.Join(users, ", "))
	}
	return nil
}
