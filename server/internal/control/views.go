package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// objectsUpTo is how many targets a deployment may have to be shown with all their objects.
const objectsUpTo = 20

// Deployments lists deployments in the order of their names, without objects.
func (s *Service) Deployments(ctx context.Context, p auth.Principal, tenant string, f ListDeployments) ([]DeploymentView, error) {
	var out []DeploymentView
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		filter, ok, err := s.filter(ctx, tx, t, f)
		if err != nil || !ok {
			return err
		}
		deployments, err := tx.Deployments().List(ctx, t.ID, filter)
		if err != nil {
			return err
		}
		out, err = viewDeployments(ctx, tx, t.ID, deployments)
		return err
	})
	return out, err
}

// filter turns names into ids; false when one of them does not exist, so that nothing matches.
func (s *Service) filter(ctx context.Context, tx store.Tx, t fleet.Tenant, f ListDeployments) (store.DeploymentFilter, bool, error) {
	out := store.DeploymentFilter{Page: f.Page, Sync: f.Sync, Health: f.Health, Labels: f.Labels, Text: f.Text}
	if f.Environment != "" {
		env, _, _, err := s.environmentOf(ctx, tx, t, f.Environment)
		var invalid *fleet.InvalidError
		if errors.As(err, &invalid) || errors.Is(err, store.ErrNotFound) {
			return out, false, nil
		}
		if err != nil {
			return out, false, err
		}
		out.Environment = env.ID
	}
	if f.Agent != "" {
		agent, err := tx.Agents().ByName(ctx, t.ID, f.Agent)
		if err != nil {
			return out, false, ignoreMissing(err)
		}
		out.Agent = agent.ID
	}
	if f.Repository != "" {
		repo, err := tx.Repositories().ByURL(ctx, t.ID, f.Repository)
		if err != nil {
			return out, false, ignoreMissing(err)
		}
		out.Repository = repo.ID
	}
	return out, true, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// Deployment returns one deployment that is not deleted, with the objects of every target while they
// are few.
func (s *Service) Deployment(ctx context.Context, p auth.Principal, tenant, name string) (DeploymentView, error) {
	var out DeploymentView
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		d, err := tx.Deployments().ByName(ctx, t.ID, name)
		if err != nil {
			return fmt.Errorf("deployment %q: %w", name, err)
		}
		views, err := viewDeployments(ctx, tx, t.ID, []fleet.Deployment{d})
		if err != nil {
			return err
		}
		out = views[0]
		if out.Operations, err = shownOperations(ctx, tx, t.ID, string(d.ID)); err != nil {
			return err
		}
		if len(out.Targets) > objectsUpTo {
			return nil
		}
		for i := range out.Targets {
			if out.Targets[i].Objects, err = tx.Targets().Objects(ctx, t.ID, out.Targets[i].ID); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// TargetObjects returns what a deployment is on one agent, with its objects.
func (s *Service) TargetObjects(ctx context.Context, p auth.Principal, tenant, deployment, agent string) (TargetView, error) {
	var out TargetView
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		d, err := tx.Deployments().ByName(ctx, t.ID, deployment)
		if err != nil {
			return fmt.Errorf("deployment %q: %w", deployment, err)
		}
		views, err := viewDeployments(ctx, tx, t.ID, []fleet.Deployment{d})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(views[0].Targets, func(v TargetView) bool { return v.AgentName == agent })
		if i < 0 {
			return fmt.Errorf("deployment %q on agent %q: %w", deployment, agent, store.ErrNotFound)
		}
		out = views[0].Targets[i]
		out.Objects, err = tx.Targets().Objects(ctx, t.ID, out.ID)
		return err
	})
	return out, err
}

// viewDeployments costs a few queries for a page of deployments, and one more for each that has
// variants or a pin.
func viewDeployments(ctx context.Context, tx store.Tx, tenant fleet.TenantID, deployments []fleet.Deployment) ([]DeploymentView, error) {
	ids := make([]fleet.DeploymentID, len(deployments))
	for i, d := range deployments {
		ids[i] = d.ID
	}
	targets, err := tx.Targets().ListByDeployments(ctx, tenant, ids)
	if err != nil {
		return nil, err
	}
	presence, err := presenceOf(ctx, tx, targets)
	if err != nil {
		return nil, err
	}
	byDeployment := map[fleet.DeploymentID][]fleet.Target{}
	for _, t := range targets {
		byDeployment[t.DeploymentID] = append(byDeployment[t.DeploymentID], t)
	}
	viewer := &viewer{tx: tx, holds: newHolds(tx), presence: presence, repositories: map[fleet.RepositoryID]string{}}
	out := make([]DeploymentView, len(deployments))
	for i, d := range deployments {
		if out[i], err = viewer.view(ctx, d, byDeployment[d.ID]); err != nil {
			return nil, fmt.Errorf("deployment %q: %w", d.Name, err)
		}
	}
	return out, nil
}

// presenceOf reads the connections of the agents of targets, which may be other tenants'.
func presenceOf(ctx context.Context, tx store.Tx, targets []fleet.Target) (map[fleet.AgentID][]fleet.Connection, error) {
	agents := map[fleet.AgentID]bool{}
	for _, t := range targets {
		if t.AgentID != "" {
			agents[t.AgentID] = true
		}
	}
	connections, err := tx.Connections().OfAgentsAllTenants(ctx, slices.Sorted(maps.Keys(agents)))
	return groupConnections(connections), err
}
