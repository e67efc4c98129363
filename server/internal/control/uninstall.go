package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/placement"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// AgentObjects counts the objects that an agent manages for the deployments of its own tenant.
type AgentObjects struct {
	Deployments []string // names of deployments with objects, or with objects that are being deleted
	Objects     int
	// Others is the number of targets of deployments of other tenants, through grants. They are never deleted
	// with the agent.
	Others       int
	Connected    bool
	Uninstalling bool
}

// AgentObjects returns what DeleteAgentObjects would delete, and during the deletion the remaining objects.
func (s *Service) AgentObjects(ctx context.Context, p auth.Principal, tenant, name string) (AgentObjects, error) {
	var out AgentObjects
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		a, err := agentByName(ctx, tx, t.ID, name)
		if err != nil {
			return err
		}
		out, _, err = s.agentObjects(ctx, tx, a)
		return err
	})
	return out, err
}

func (s *Service) agentObjects(ctx context.Context, tx store.Tx, a fleet.Agent) (AgentObjects, []fleet.Target, error) {
	views, err := s.viewAgents(ctx, tx, []fleet.Agent{a})
	if err != nil {
		return AgentObjects{}, nil, err
	}
	all, err := tx.Targets().OfAgentAllTenants(ctx, a.ID)
	if err != nil {
		return AgentObjects{}, nil, err
	}
	out := AgentObjects{Connected: views[0].Connected, Uninstalling: a.Uninstalling}
	for _, t := range all {
		switch {
		case t.Desired.Detached || !t.DetachedAt.IsZero():
			continue // its objects stay
		case t.TenantID != a.TenantID:
			out.Others++
			continue
		}
		objects, err := tx.Targets().Objects(ctx, t.TenantID, t.ID)
		if err != nil {
			return AgentObjects{}, nil, err
		}
		out.Deployments, out.Objects = append(out.Deployments, t.DeploymentName), out.Objects+len(objects)
	}
	slices.Sort(out.Deployments)
	return out, all, nil
}

// DeleteAgentObjects lets an agent delete everything that it manages for the deployments of its own tenant:
// each of its targets becomes a tombstone, so that protected kinds are kept and reported. The deployments stay,
// with their targets on other agents, and no environment selects the agent any more. Targets of other tenants
// are detached with their objects. objects is the number that the caller agreed to; another number refuses the
// request, and so do an agent that is not connected and a suspension: then nothing is deleted.
func (s *Service) DeleteAgentObjects(ctx context.Context, p auth.Principal, tenant, name string, objects int) (AgentObjects, error) {
	var out AgentObjects
	err := s.store.Update(ctx, func(tx store.Tx) error {
		a, err := administrableAgent(ctx, tx, p, tenant, name)
		if err != nil {
			return err
		}
		found, targets, err := s.agentObjects(ctx, tx, a)
		if err != nil {
			return err
		}
		switch {
		case a.Uninstalling:
			out = found
			return nil // it was asked for before
		case !found.Connected:
			return fleet.Conflict("agent %q is not connected, so its objects cannot be deleted: nothing was deleted", name)
		case found.Objects != objects:
			return fleet.Conflict("agent %q has %d objects now, not %d: check again, nothing was deleted", name, found.Objects, objects)
		}
		if err := s.removable(ctx, tx, a, targets); err != nil {
			return err
		}
		if err := servesNothing(ctx, tx, a, "be uninstalled"); err != nil {
			return err
		}
		if err := tx.Agents().SetUninstalling(ctx, a.TenantID, a.ID); err != nil {
			return err
		}
		if err := s.removeTargets(ctx, tx, a, targets); err != nil {
			return err
		}
		found.Uninstalling = true
		out = found
		what := fmt.Sprintf("%d objects of %d deployments are deleted on request", found.Objects, len(found.Deployments))
		if err := s.audit(ctx, tx, p, agentEvent("agent.uninstall", a, what)); err != nil {
			return err
		}
		return s.tell(ctx, tx, fleet.Event{
			TenantID: a.TenantID, Type: fleet.EventNormal, Reason: fleet.ReasonAgentUninstalling, Agent: name, Message: fmt.Sprintf("agent %q: %s, by %s", name, what, p.Name),
		})
	})
	return out, err
}

// removable returns why the objects of an agent must not be deleted now, if so.
func (s *Service) removable(ctx context.Context, tx store.Tx, a fleet.Agent, targets []fleet.Target) error {
	holds := rollout.NewSuspensions(tx)
	for _, t := range targets {
		if t.TenantID != a.TenantID || placement.HasLeft(t) {
			continue
		}
		d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
		if err != nil {
			return err
		}
		held, err := holds.Around(ctx, d)
		if err != nil {
			return err
		}
		if !held.IsZero() {
			return fleet.Conflict("the objects of deployment %q cannot be deleted now: %s; nothing was deleted", d.Name, held)
		}
		if s.planner.Ahead(t) {
			return fleet.Conflict("agent %q is ahead of the server with deployment %q: wait until its source is read again; nothing was deleted", a.Name, d.Name)
		}
	}
	return nil
}

// removeTargets makes tombstones of an agent's targets of its own tenant, and detaches the others.
func (s *Service) removeTargets(ctx context.Context, tx store.Tx, a fleet.Agent, targets []fleet.Target) error {
	for _, t := range targets {
		if placement.HasLeft(t) {
			// An agent that goes cannot wait for a confirmation.
			if _, err := s.placer.ReleaseProtected(ctx, tx, t); err != nil {
				return fmt.Errorf("deployment %q: %w", t.DeploymentName, err)
			}
			continue
		}
		if err := s.placer.Detach(ctx, tx, t, fmt.Sprintf("agent %q is uninstalled", a.Name), t.TenantID == a.TenantID); err != nil {
			return fmt.Errorf("deployment %q: %w", t.DeploymentName, err)
		}
		d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
		if err != nil {
			return err
		}
		if err := s.placer.ReconcileOne(ctx, tx, d, t.ID); err != nil {
			return err
		}
	}
	return nil
}
