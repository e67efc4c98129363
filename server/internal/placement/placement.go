package placement

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/listing"
	"github.com/kedge-dev/kedge/server/internal/quota"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Destination is the environment of a deployment.
type Destination struct {
	Env   fleet.Environment
	Grant fleet.Grant // zero if the environment belongs to the tenant
	open  bool        // it belongs to the tenant, or is granted
}

// Selects reports whether the deployment goes to the agent.
func (w Destination) Selects(a fleet.Agent) bool { return w.open && w.Env.Selects(a) }

// DestinationOf finds the destination of d. An environment that is no longer granted is still known, but
// closed.
func DestinationOf(ctx context.Context, tx store.Tx, d fleet.Deployment) (Destination, error) {
	env, err := tx.Environments().Get(ctx, d.EnvironmentTenant, d.EnvironmentID)
	if err != nil {
		return Destination{}, fmt.Errorf("environment of deployment %q: %w", d.Name, err)
	}
	return destinationIn(ctx, tx, d.TenantID, env)
}

// destinationIn returns env for the deployments of a tenant.
func destinationIn(ctx context.Context, tx store.Tx, tenant fleet.TenantID, env fleet.Environment) (Destination, error) {
	w := Destination{Env: env, open: env.TenantID == tenant}
	if w.open {
		return w, nil
	}
	grant, err := tx.Grants().OfEnvironment(ctx, tenant, env.ID)
	if errors.Is(err, store.ErrNotFound) {
		return w, nil
	}
	w.Grant, w.open = grant, err == nil
	return w, err
}

// Place creates, detaches, and reconciles the targets of d according to its environment. Everything that can
// change the agents of a deployment uses it; the same input writes nothing.
func (p *Placer) Place(ctx context.Context, tx store.Tx, d fleet.Deployment) error {
	w, err := DestinationOf(ctx, tx, d)
	if err != nil {
		return err
	}
	agents, err := Candidates(ctx, tx, w.Env)
	if err != nil {
		return err
	}
	return p.placeOn(ctx, tx, d, w, agents, d.TenantID)
}

// fewAgents is the number of agents up to which they are looked up one by one.
const fewAgents = 10

// Candidates returns a superset of the agents that an environment selects. If it names a few, it returns only
// those, in a fleet of any size.
func Candidates(ctx context.Context, tx store.Tx, env fleet.Environment) ([]fleet.Agent, error) {
	if len(env.Agents) == 0 || len(env.Agents) > fewAgents || len(env.MatchLabels) > 0 {
		return listing.Agents(ctx, tx, env.TenantID, store.AgentFilter{})
	}
	var out []fleet.Agent
	for _, name := range env.Agents {
		a, err := tx.Agents().ByName(ctx, env.TenantID, name)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// placeOn is place with the given candidates. Only the quota of the acting tenant applies: changes of another
// tenant's own agents are not refused because of d.
func (p *Placer) placeOn(
	ctx context.Context, tx store.Tx, d fleet.Deployment, w Destination, agents []fleet.Agent, acting fleet.TenantID,
) error {
	if !d.DeletedAt.IsZero() {
		return nil
	}
	if err := p.Assign(ctx, tx, d, w, agents, acting); err != nil {
		return err
	}
	return p.planner.Reconcile(ctx, tx, d)
}

// Assign is placeOn without settling.
func (p *Placer) Assign(
	ctx context.Context, tx store.Tx, d fleet.Deployment, w Destination, agents []fleet.Agent, acting fleet.TenantID,
) error {
	targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	byAgent := map[fleet.AgentID]fleet.Target{}
	behind := map[string][]fleet.Target{}
	for _, t := range targets {
		if t.AgentID != "" {
			byAgent[t.AgentID] = t
		} else if t.AgentTenant == w.Env.TenantID {
			behind[t.AgentName] = append(behind[t.AgentName], t)
		}
	}
	added := 0
	for _, a := range agents {
		t, ok := byAgent[a.ID]
		if left := behind[a.Name]; !ok && len(left) > 0 {
			where, err := ClusterOf(ctx, tx, a.ID)
			if err != nil {
				return err
			}
			t = where.newestLeft(left)
		}
		if !ok && t.ID == "" && w.Env.Push != nil && w.Selects(a) {
			t = leftByInstance(behind, a)
		}
		_, change, err := p.assign(ctx, tx, d, w, a, t)
		if err != nil {
			return fmt.Errorf("deployment %q on agent %q: %w", d.Name, a.Name, err)
		}
		if change == assignmentNew {
			added++
		}
		delete(byAgent, a.ID)
	}
	// The rest is on agents that d has left.
	for _, t := range targets {
		if _, ok := byAgent[t.AgentID]; !ok {
			continue
		}
		if _, err := p.unassign(ctx, tx, d, w, t); err != nil {
			return fmt.Errorf("deployment %q on agent %q: %w", d.Name, t.AgentName, err)
		}
	}
	if added > 0 && acting == d.TenantID {
		return p.targetsWithinQuota(ctx, tx, acting)
	}
	return nil
}

// targetsWithinQuota checks the quota after targets were added, with one count.
func (p *Placer) targetsWithinQuota(ctx context.Context, tx store.Tx, tenant fleet.TenantID) error {
	t, err := tx.Tenants().Get(ctx, tenant)
	if err != nil {
		return err
	}
	return quota.Check(ctx, tx, t, quota.Targets, 0)
}

// PlaceEnvironment places every deployment of an environment.
func (p *Placer) PlaceEnvironment(ctx context.Context, tx store.Tx, env fleet.Environment) error {
	return p.PlaceWithin(ctx, tx, env, func(fleet.Deployment) bool { return true })
}

// PlaceWithin places the given deployments of an environment.
func (p *Placer) PlaceWithin(ctx context.Context, tx store.Tx, env fleet.Environment, concerned func(fleet.Deployment) bool) error {
	deployments, err := tx.Deployments().OfEnvironmentAllTenants(ctx, env.ID)
	if err != nil {
		return err
	}
	agents, err := listing.Agents(ctx, tx, env.TenantID, store.AgentFilter{})
	if err != nil {
		return err
	}
	if err := wakePendingSpecs(ctx, tx, env); err != nil {
		return err
	}
	for _, d := range deployments {
		if !concerned(d) {
			continue
		}
		w, err := destinationIn(ctx, tx, d.TenantID, env)
		if err != nil {
			return err
		}
		if err := p.placeOn(ctx, tx, d, w, agents, env.TenantID); err != nil {
			return err
		}
	}
	return nil
}
