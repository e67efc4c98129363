package placement

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/listing"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// PlaceAgent creates and updates the targets of one agent for the deployments whose environments select it. It
// is place for all of them, without the other agents.
func (p *Placer) PlaceAgent(ctx context.Context, tx store.Tx, a fleet.Agent) error {
	added, err := p.assignAgent(ctx, tx, a)
	if err != nil || !added {
		return err
	}
	return p.targetsWithinQuota(ctx, tx, a.TenantID)
}

// assignAgent is placeAgent without quotas. It reports whether targets of the agent's own tenant were added.
func (p *Placer) assignAgent(ctx context.Context, tx store.Tx, a fleet.Agent) (added bool, err error) {
	targets, err := tx.Targets().OfAgentAllTenants(ctx, a.ID)
	if err != nil {
		return false, err
	}
	byDeployment, err := leftForAgent(ctx, tx, a)
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
		own, err := p.assignIn(ctx, tx, env, a, byDeployment)
		if err != nil {
			return false, err
		}
		added = added || own
	}
	return added, p.unassignFrom(ctx, tx, a, targets, byDeployment)
}

// assignIn assigns an agent to every deployment of an environment that selects it, and removes them from
// byDeployment. It reports whether targets of the agent's own tenant were added.
func (p *Placer) assignIn(
	ctx context.Context, tx store.Tx, env fleet.Environment, a fleet.Agent, byDeployment map[fleet.DeploymentID]fleet.Target,
) (bool, error) {
	deployments, err := tx.Deployments().OfEnvironmentAllTenants(ctx, env.ID)
	if err != nil {
		return false, err
	}
	if err := wakePendingSpecs(ctx, tx, env); err != nil {
		return false, err
	}
	added := false
	destinations := map[fleet.TenantID]Destination{}
	for _, d := range deployments {
		w, ok := destinations[d.TenantID]
		if !ok {
			if w, err = destinationIn(ctx, tx, d.TenantID, env); err != nil {
				return false, err
			}
			destinations[d.TenantID] = w
		}
		change, err := p.assignOne(ctx, tx, d, w, a, byDeployment[d.ID])
		if err != nil {
			return false, err
		}
		added = added || change == assignmentNew && d.TenantID == a.TenantID
		delete(byDeployment, d.ID)
	}
	return added, nil
}

// unassignFrom detaches the rest of byDeployment: targets whose environments do not select the agent.
func (p *Placer) unassignFrom(
	ctx context.Context, tx store.Tx, a fleet.Agent, targets []fleet.Target, byDeployment map[fleet.DeploymentID]fleet.Target,
) error {
	return p.reassign(ctx, tx, a, targets, func(t fleet.Target) bool {
		_, ok := byDeployment[t.DeploymentID]
		return ok
	})
}

// reassign assigns an agent again to the deployments of its matching targets, except for targets that have left.
func (p *Placer) reassign(ctx context.Context, tx store.Tx, a fleet.Agent, targets []fleet.Target, matches func(fleet.Target) bool) error {
	for _, t := range targets {
		if !matches(t) || HasLeft(t) {
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
		if _, err := p.assignOne(ctx, tx, d, w, a, t); err != nil {
			return err
		}
	}
	return nil
}

// assignOne assigns one agent and reconciles only its target, not the others of d.
func (p *Placer) assignOne(ctx context.Context, tx store.Tx, d fleet.Deployment, w Destination, a fleet.Agent, t fleet.Target) (assignment, error) {
	id, change, err := p.assign(ctx, tx, d, w, a, t)
	if err == nil && change != assignmentSame {
		err = p.ReconcileOne(ctx, tx, d, id)
	}
	if err != nil {
		return assignmentSame, fmt.Errorf("deployment %q on agent %q: %w", d.Name, a.Name, err)
	}
	return change, nil
}

// ReconcileOne settles a target of d that was just written; a run may wait for a removed one.
func (p *Placer) ReconcileOne(ctx context.Context, tx store.Tx, d fleet.Deployment, id fleet.TargetID) error {
	t, err := tx.Targets().Get(ctx, d.TenantID, id)
	if errors.Is(err, store.ErrNotFound) {
		return p.planner.ReconcileTargets(ctx, tx, d, nil)
	}
	if err != nil {
		return err
	}
	return p.planner.ReconcileTargets(ctx, tx, d, []fleet.Target{t})
}
