package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/reposync"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	// FirstTargets is the number of targets in the view of a deployment; the rest is read in pages.
	FirstTargets = 100
	// objectsUpTo is the number of targets up to which a deployment is shown with all their objects.
	objectsUpTo = 20
)

// Deployments lists deployments, sorted by name, without targets.
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
		out, err = newViewer(tx, t.ID).deployments(ctx, deployments)
		return err
	})
	return out, err
}

// filter converts names to ids; false if one of them does not exist, so that nothing matches.
func (s *Service) filter(ctx context.Context, tx store.Tx, t fleet.Tenant, f ListDeployments) (store.DeploymentFilter, bool, error) {
	out := store.DeploymentFilter{Page: f.Page, Sync: f.Sync, Health: f.Health, Reason: f.Reason, Labels: f.Labels, Selector: f.Selector, Text: f.Text}
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

// Deployment returns one deployment that is not deleted, with its first targets, and with all their objects if
// they are few.
func (s *Service) Deployment(ctx context.Context, p auth.Principal, tenant, name string) (DeploymentView, error) {
	var out DeploymentView
	err := s.viewDeployment(ctx, p, tenant, name, func(tx store.Tx, v *viewer, d fleet.Deployment) error {
		var err error
		out, err = v.whole(ctx, tx, d)
		return err
	})
	return out, err
}

// whole views one deployment with its first targets, and with all their objects if they are few.
func (v *viewer) whole(ctx context.Context, tx store.Tx, d fleet.Deployment) (DeploymentView, error) {
	views, err := v.deployments(ctx, []fleet.Deployment{d})
	if err != nil {
		return DeploymentView{}, err
	}
	out := views[0]
	if out.Evaluated, err = reposync.EvaluatedCommit(ctx, tx, d); err != nil {
		return DeploymentView{}, err
	}
	if out.Operations, err = shownOperations(ctx, tx, d.TenantID, string(d.ID)); err != nil {
		return DeploymentView{}, err
	}
	out.Targets, err = v.targets(ctx, d, store.TargetFilter{Page: store.Page{Limit: FirstTargets}})
	if err != nil || out.Counts.Targets > objectsUpTo {
		return out, err
	}
	for i := range out.Targets {
		if out.Targets[i].Objects, err = tx.Targets().Objects(ctx, d.TenantID, out.Targets[i].ID); err != nil {
			return DeploymentView{}, err
		}
	}
	return out, nil
}

// Targets lists the matching targets of a deployment, by agent name, without objects. The caller must not set
// f.Held.
func (s *Service) Targets(ctx context.Context, p auth.Principal, tenant, name string, f store.TargetFilter) ([]TargetView, error) {
	var out []TargetView
	err := s.viewDeployment(ctx, p, tenant, name, func(_ store.Tx, v *viewer, d fleet.Deployment) (err error) {
		out, err = v.targets(ctx, d, f)
		return err
	})
	return out, err
}

// TargetObjects returns a deployment on one agent, with its objects.
func (s *Service) TargetObjects(ctx context.Context, p auth.Principal, tenant, deployment, agent string) (TargetView, error) {
	var out TargetView
	err := s.viewDeployment(ctx, p, tenant, deployment, func(tx store.Tx, v *viewer, d fleet.Deployment) error {
		found, err := v.targets(ctx, d, store.TargetFilter{Agent: agent, Page: store.Page{Limit: 1}})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("deployment %q on agent %q: %w", deployment, agent, store.ErrNotFound)
		}
		out = found[0]
		out.Objects, err = tx.Targets().Objects(ctx, d.TenantID, out.ID)
		return err
	})
	return out, err
}

// viewDeployment calls fn with a deployment that p may read.
func (s *Service) viewDeployment(ctx context.Context, p auth.Principal, tenant, name string, fn func(store.Tx, *viewer, fleet.Deployment) error) error {
	return s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		d, err := tx.Deployments().ByName(ctx, t.ID, name)
		if err != nil {
			return fmt.Errorf("deployment %q: %w", name, err)
		}
		return fn(tx, newViewer(tx, t.ID), d)
	})
}
