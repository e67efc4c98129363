package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// SuspendDeployment holds back new states until ResumeDeployment. The state that was sent stays in force, and
// drift from it is corrected. A second call with the same reason changes nothing.
func (s *Service) SuspendDeployment(ctx context.Context, p auth.Principal, tenant, name, reason string) (DeploymentView, error) {
	return s.setSuspension(ctx, p, tenant, name, func(was fleet.Suspension) fleet.Suspension {
		if was.Active() && was.Reason == reason {
			return was
		}
		return fleet.Suspension{At: s.cfg.Now(), By: p.Name, Reason: reason}
	})
}

// ResumeDeployment ends a suspension. Newer renders are sent immediately.
func (s *Service) ResumeDeployment(ctx context.Context, p auth.Principal, tenant, name string) (DeploymentView, error) {
	return s.setSuspension(ctx, p, tenant, name, func(fleet.Suspension) fleet.Suspension { return fleet.Suspension{} })
}

func (s *Service) setSuspension(ctx context.Context, p auth.Principal, tenant, name string, change func(fleet.Suspension) fleet.Suspension) (DeploymentView, error) {
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, d, err := s.deployableDeployment(ctx, tx, p, tenant, name)
		if err != nil {
			return err
		}
		if err := checkOwner(ctx, tx, p, deploymentResource(d), "suspended or resumed"); err != nil {
			return err
		}
		return s.suspend(ctx, tx, p, t, d, change(d.Suspension))
	})
	if err != nil {
		return DeploymentView{}, err
	}
	return s.Deployment(ctx, p, tenant, name)
}

// wantedSuspension returns the suspension of a deployment after an edit.
func (s *Service) wantedSuspension(p auth.Principal, d fleet.Deployment, req UpdateDeployment) fleet.Suspension {
	switch {
	case req.Suspend == nil || *req.Suspend == d.Suspension.Active():
		return d.Suspension
	case *req.Suspend:
		return s.suspension(p, suspendedBySpec)
	}
	return fleet.Suspension{}
}

// suspend changes the suspension of a deployment, which may have been edited in the same transaction.
func (s *Service) suspend(ctx context.Context, tx store.Tx, p auth.Principal, t fleet.Tenant, d fleet.Deployment, next fleet.Suspension) error {
	if next == d.Suspension {
		return nil
	}
	d, err := tx.Deployments().Get(ctx, t.ID, d.ID)
	if err != nil {
		return err
	}
	d.Suspension = next
	action, what := "deployment.resume", "resumed"
	if next.Active() {
		action, what = "deployment.suspend", "suspended"+wording.Suffix(next.Reason)
	}
	return s.edited(ctx, tx, p, t, d, action, what)
}
