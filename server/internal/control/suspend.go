package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// SuspendDeployment keeps anything new from being sent until ResumeDeployment. What was sent goes on
// running, and drift is healed towards it. A second one with the same reason changes
// nothing.
func (s *Service) SuspendDeployment(ctx context.Context, p auth.Principal, tenant, name, reason string) (DeploymentView, error) {
	return s.setSuspension(ctx, p, tenant, name, "deployment.suspend", func(was fleet.Suspension) fleet.Suspension {
		if was.Active() && was.Reason == reason {
			return was
		}
		return fleet.Suspension{At: s.cfg.Now(), By: p.Name, Reason: reason}
	})
}

// ResumeDeployment ends a suspension. What was rendered meanwhile is sent at once.
func (s *Service) ResumeDeployment(ctx context.Context, p auth.Principal, tenant, name string) (DeploymentView, error) {
	return s.setSuspension(ctx, p, tenant, name, "deployment.resume", func(fleet.Suspension) fleet.Suspension { return fleet.Suspension{} })
}

func (s *Service) setSuspension(ctx context.Context, p auth.Principal, tenant, name, action string, change func(fleet.Suspension) fleet.Suspension) (DeploymentView, error) {
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, d, err := s.deployableDeployment(ctx, tx, p, tenant, name)
		if err != nil {
			return err
		}
		next := change(d.Suspension)
		if next == d.Suspension {
			return nil
		}
		d.Suspension = next
		what := "resumed"
		if next.Active() {
			what = "suspended" + wording.Suffix(next.Reason)
		}
		return s.edited(ctx, tx, p, t, d, action, what)
	})
	if err != nil {
		return DeploymentView{}, err
	}
	return s.Deployment(ctx, p, tenant, name)
}
