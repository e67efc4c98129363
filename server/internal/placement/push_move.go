package placement

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// move moves a push environment away from a draining engine instance, in two steps, so that two Argo CD never apply the same
// deployment:
//
//	on A ──A drains, B can serve──▶ moving from A: the targets are detached ──A has confirmed each──▶ on B
//
// If A is not connected, the move waits. Targets keep their IDs, and thus the names of their Applications: Argo CD on B then
// recognizes the objects as those of its Application. No object is deleted, independent of the policy of the deployment.
func (p *Placer) move(ctx context.Context, tx store.Tx, env fleet.Environment) error {
	if env.Push.MovingFrom == "" {
		began, err := p.beginMove(ctx, tx, &env)
		if err != nil || !began {
			return err
		}
	}
	return p.finishMove(ctx, tx, env)
}

// beginMove detaches the targets of an environment on a draining engine instance, if another one can serve it.
func (p *Placer) beginMove(ctx context.Context, tx store.Tx, env *fleet.Environment) (bool, error) {
	from, err := tx.Agents().Get(ctx, env.TenantID, env.Push.Instance)
	if err != nil && !errors.Is(err, store.ErrNotFound) || err == nil && !from.Draining {
		return false, err
	}
	next, err := p.ChooseInstance(ctx, tx, env.TenantID, env.Push.APIURL)
	if err != nil || next == "" {
		return false, err
	}
	env.Push.MovingFrom, env.Push.Instance = env.Push.Instance, ""
	if err := tx.Environments().Update(ctx, *env); err != nil {
		return false, err
	}
	targets, err := placed(ctx, tx, *env)
	if err != nil {
		return false, err
	}
	for _, t := range targets {
		if HasLeft(t.Target) {
			continue
		}
		why := fmt.Sprintf("environment %q moves from agent %q to another engine instance", env.Name, t.AgentName)
		if err := p.Detach(ctx, tx, t.Target, why, false); err != nil {
			return false, err
		}
		if err := p.ReconcileOne(ctx, tx, t.deployment, t.ID); err != nil {
			return false, err
		}
	}
	return true, nil
}

// placedTarget is a target with its deployment.
type placedTarget struct {
	fleet.Target
	deployment fleet.Deployment
}

// placed returns the targets of a moving environment on the agent that it leaves, also those of deleted deployments.
func placed(ctx context.Context, tx store.Tx, env fleet.Environment) ([]placedTarget, error) {
	targets, err := tx.Targets().OfAgentAllTenants(ctx, env.Push.MovingFrom)
	if err != nil {
		return nil, err
	}
	var out []placedTarget
	for _, t := range targets {
		d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
		if err != nil {
			return nil, err
		}
		if d.EnvironmentID == env.ID {
			out = append(out, placedTarget{t, d})
		}
	}
	return out, nil
}

// finishMove gives an environment its next engine instance when the former one has released every target.
func (p *Placer) finishMove(ctx context.Context, tx store.Tx, env fleet.Environment) error {
	targets, err := placed(ctx, tx, env)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if !rollout.Released(t.Target) {
			return nil // the next report of the agent tries again
		}
	}
	next, err := p.ChooseInstance(ctx, tx, env.TenantID, env.Push.APIURL)
	if err != nil || next == "" {
		return err
	}
	to, err := tx.Agents().Get(ctx, env.TenantID, next)
	if err != nil {
		return err
	}
	env.Push.Instance, env.Push.MovingFrom = to.ID, ""
	if err := tx.Environments().Update(ctx, env); err != nil {
		return err
	}
	for _, t := range targets {
		if err := p.moveTarget(ctx, tx, env, t, to); err != nil {
			return fmt.Errorf("moving deployment %q to agent %q: %w", t.DeploymentName, to.Name, err)
		}
	}
	return p.PlaceEnvironment(ctx, tx, env)
}

// moveTarget puts a released target on another agent. It prunes nothing at first: what was held is known to the former
// Application only.
func (p *Placer) moveTarget(ctx context.Context, tx store.Tx, env fleet.Environment, t placedTarget, to fleet.Agent) error {
	w, err := destinationIn(ctx, tx, t.TenantID, env)
	if err != nil || !w.Selects(to) || !t.deployment.DeletedAt.IsZero() {
		return err // it stays detached
	}
	from, want := t.AgentName, t.Target
	want.AgentTenant, want.AgentID, want.AgentName = to.TenantID, to.ID, to.Name
	want.GrantID, want.DetachedAt, want.DetachedWhy, want.LeftIn = w.Grant.ID, time.Time{}, "", ""
	want.Variant, want.VariantError = variantFor(t.deployment, to)
	if err := tx.Targets().SetPlace(ctx, want); err != nil {
		return err
	}
	renewed := fleet.Desired{
		Version: p.planner.Next(rollout.Newest(want)), Namespace: t.deployment.Namespace, Policy: w.Grant.Applied(t.deployment.Policy), HoldPrune: true,
	}
	if err := tx.Targets().SetDesired(ctx, want.TenantID, want.ID, renewed); err != nil {
		return err
	}
	if err := p.tell(ctx, tx, fleet.Event{
		TenantID: want.TenantID, Type: fleet.EventNormal, Reason: fleet.ReasonTargetMoved, Agent: to.Name, Deployment: want.DeploymentName,
		Message: fmt.Sprintf("environment %q moved from agent %q to agent %q", env.Name, from, to.Name),
	}); err != nil {
		return err
	}
	return p.ReconcileOne(ctx, tx, t.deployment, want.ID)
}

// leftByInstance returns the target that an engine instance that was deleted has left, for the next one; the zero value if
// there is none. Its objects are in the cluster of the environment, not in that of the deleted agent.
func leftByInstance(behind map[string][]fleet.Target, to fleet.Agent) fleet.Target {
	var out fleet.Target
	for _, list := range behind {
		for _, t := range list {
			if out.ID == "" || t.DetachedAt.After(out.DetachedAt) {
				out = t
			}
		}
	}
	if out.ID != "" {
		out.AgentTenant, out.AgentName, out.LeftIn = to.TenantID, to.Name, ""
	}
	return out
}
