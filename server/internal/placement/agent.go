package placement

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/listing"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// PlaceAgent makes the targets of one agent those of the deployments whose environments select it. It is
// place for all of them, without looking at the other agents.
func (s *Placer) PlaceAgent(ctx context.Context, tx store.Tx, a fleet.Agent) error {
	added, err := s.seatAgent(ctx, tx, a)
	if err != nil || !added {
		return err
	}
	return s.targetsWithinQuota(ctx, tx, a.TenantID)
}

// seatAgent is placeAgent, whatever the quota says. It reports whether targets of the agent's own tenant
// were added.
func (s *Placer) seatAgent(ctx context.Context, tx store.Tx, a fleet.Agent) (added bool, err error) {
	targets, err := tx.Targets().OfAgentAllTenants(ctx, a.ID)
	if err != nil {
		return false, err
	}
	byDeployment, err := heirs(ctx, tx, a)
	if err != nil {
		return false, err
	}
	for _, t := range targets {
		byDeployment[t.DeploymentID] = t
	}
	environments, err := listing.Environments(ctx, tx, a.TenantID)
	if err != nil {
		return false, err
	}
	for _, env := range environments {
		if !env.Selects(a) {
			continue
		}
		own, err := s.seatIn(ctx, tx, env, a, byDeployment)
		if err != nil {
			return false, err
		}
		added = added || own
	}
	return added, s.unseatFrom(ctx, tx, a, targets, byDeployment)
}

// seatIn seats an agent in every deployment of an environment that selects it, and takes them out of
// byDeployment. It reports whether targets of the agent's own tenant were added.
func (s *Placer) seatIn(
	ctx context.Context, tx store.Tx, env fleet.Environment, a fleet.Agent, byDeployment map[fleet.DeploymentID]fleet.Target,
) (bool, error) {
	deployments, err := tx.Deployments().OfEnvironmentAllTenants(ctx, env.ID)
	if err != nil {
		return false, err
	}
	if err := lookAgain(ctx, tx, env); err != nil {
		return false, err
	}
	added := false
	destinations := map[fleet.TenantID]destination{}
	for _, d := range deployments {
		w, ok := destinations[d.TenantID]
		if !ok {
			if w, err = destinationIn(ctx, tx, d.TenantID, env); err != nil {
				return false, err
			}
			destinations[d.TenantID] = w
		}
		seat, err := s.seatOne(ctx, tx, d, w, a, byDeployment[d.ID])
		if err != nil {
			return false, err
		}
		added = added || seat == seatNew && d.TenantID == a.TenantID
		delete(byDeployment, d.ID)
	}
	return added, nil
}

// unseatFrom detaches what is left in byDeployment: targets whose environments do not select the agent.
func (s *Placer) unseatFrom(
	ctx context.Context, tx store.Tx, a fleet.Agent, targets []fleet.Target, byDeployment map[fleet.DeploymentID]fleet.Target,
) error {
	for _, t := range targets {
		if _, ok := byDeployment[t.DeploymentID]; !ok || HasLeft(t) {
			continue
		}
		d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
		if err != nil {
			return err
		}
		w, err := DestinationOf(ctx, tx, d)
		if err != nil {
			return err
		}
		if _, err := s.seatOne(ctx, tx, d, w, a, t); err != nil {
			return err
		}
	}
	return nil
}

// seatOne seats one agent and settles just its target: the others of d are not looked at.
func (s *Placer) seatOne(ctx context.Context, tx store.Tx, d fleet.Deployment, w destination, a fleet.Agent, t fleet.Target) (seating, error) {
	id, seat, err := s.seat(ctx, tx, d, w, a, t)
	if err == nil && seat != seatSame {
		err = s.ReconcileOne(ctx, tx, d, id)
	}
	if err != nil {
		return seatSame, fmt.Errorf("deployment %q on agent %q: %w", d.Name, a.Name, err)
	}
	return seat, nil
}

// ReconcileOne settles a target of d that was just written; one that was removed may be what a run waits
// for.
func (s *Placer) ReconcileOne(ctx context.Context, tx store.Tx, d fleet.Deployment, id fleet.TargetID) error {
	t, err := tx.Targets().Get(ctx, d.TenantID, id)
	if errors.Is(err, store.ErrNotFound) {
		return s.planner.ReconcileTargets(ctx, tx, d, nil)
	}
	if err != nil {
		return err
	}
	return s.planner.ReconcileTargets(ctx, tx, d, []fleet.Target{t})
}
