package control

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// An edit of a deployment is one change for agents (invariant 10). The row of a deployment is its spec in
// force, and everything that reaches agents is read from there. An edit that needs a render is stored
// separately, and takes effect as a whole after the render:
//
//	edit ──needs a render──▶ pending ──the worker of its repository rendered all of it──▶ in force, placed and
//	  │                        │  ▲                                                       delivered, in one transaction
//	  │                        │  └── not readable, not usable, refused: shown, and tried again
//	  │                        └──reverted, deleted──▶ gone
//	  └──needs none, or the spec in force can be used──▶ in force immediately

// newestSpec returns d with the newest requested spec, which users see and edit.
func newestSpec(ctx context.Context, tx store.Tx, d fleet.Deployment) (fleet.Deployment, error) {
	if d.PendingSpecRevision == 0 {
		return d, nil
	}
	p, err := tx.PendingSpecs().Get(ctx, d.TenantID, d.ID)
	if err != nil {
		return fleet.Deployment{}, err
	}
	return d.With(p), nil
}

// needsRender reports whether a spec may replace the one in force only after its source is rendered: it may
// have other objects, or the same objects on other agents or in another namespace.
func needsRender(inForce, wanted fleet.Deployment) bool {
	return !inForce.Source.Equal(wanted.Source) || inForce.Namespace != wanted.Namespace ||
		inForce.EnvironmentID != wanted.EnvironmentID || inForce.Policy.AllowEmpty != wanted.Policy.AllowEmpty
}

// aimEdit finds the environment of an edit.
func (s *Service) aimEdit(ctx context.Context, tx store.Tx, t fleet.Tenant, e *edit) error {
	switch e.wanted.Environment {
	case e.newest.Environment:
		return nil
	case e.inForce.Environment:
		e.wanted.EnvironmentTenant, e.wanted.EnvironmentID = e.inForce.EnvironmentTenant, e.inForce.EnvironmentID
		return nil
	}
	if err := s.move(ctx, tx, t, e.inForce, &e.wanted); err != nil {
		return err
	}
	return s.placer.CheckQuota(ctx, tx, t, e.wanted)
}

// setPending stores an edit that takes effect when its source is rendered.
func (s *Service) setPending(ctx context.Context, tx store.Tx, p auth.Principal, e edit, what string) error {
	pending := e.wanted.Pending(p.Name)
	if e.inForce.PendingSpecRevision != 0 {
		was, err := tx.PendingSpecs().Get(ctx, e.inForce.TenantID, e.inForce.ID)
		if err != nil {
			return err
		}
		pending.EditedAt = was.EditedAt
	}
	if !e.newest.Source.Equal(e.wanted.Source) || e.newest.Namespace != e.wanted.Namespace {
		pending.EditedAt = s.cfg.Now()
	}
	if err := tx.PendingSpecs().Put(ctx, pending); err != nil {
		return fmt.Errorf("deployment %q: %w", e.wanted.Name, err)
	}
	if err := s.record(ctx, tx, p, e.wanted, "deployment.update", fleet.ReasonDeploymentEdited, what); err != nil {
		return err
	}
	return s.planner.NextRun(ctx, tx, e.inForce.TenantID, e.inForce.ID) // runs wait for it from now on
}

// editInForce applies an edit that needs no render. It replaces a pending spec.
func (s *Service) editInForce(ctx context.Context, tx store.Tx, p auth.Principal, t fleet.Tenant, e edit, what string) error {
	d := e.inForce
	d.Labels, d.Policy = e.wanted.Labels, e.wanted.Policy
	if d.PendingSpecRevision != 0 {
		what += fmt.Sprintf(": spec revision %d is withdrawn", d.PendingSpecRevision)
		if err := tx.PendingSpecs().Remove(ctx, d.TenantID, d.ID); err != nil {
			return fmt.Errorf("deployment %q: %w", d.Name, err)
		}
	}
	if len(changes(e.inForce, d)) == 0 {
		if err := s.record(ctx, tx, p, d, "deployment.update", fleet.ReasonDeploymentEdited, what); err != nil {
			return err
		}
		return s.planner.NextRun(ctx, tx, d.TenantID, d.ID)
	}
	if err := s.planner.Repin(ctx, tx, p.Name, e.inForce, &d); err != nil {
		return err
	}
	return s.edited(ctx, tx, p, t, d, "deployment.update", what)
}
