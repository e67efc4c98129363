package control

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// DetachedTargets lists the detached targets of a tenant, by deployment name.
func (s *Service) DetachedTargets(ctx context.Context, p auth.Principal, tenant string, f store.DetachedFilter) ([]fleet.Target, error) {
	var out []fleet.Target
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out, err = tx.Targets().Detached(ctx, t.ID, f)
		return err
	})
	return out, err
}

// Dismissed is the result of DismissTargets.
type Dismissed struct {
	Targets []fleet.Target
	// Kept is the number of matching targets that are not dismissed, because their agent has not released them
	// yet.
	Kept int
}

// DismissTargets removes the rows of all detached targets of a deployment, of an agent, or of a deployment on
// an agent, whose agent was deleted or has released them: the objects stay and are no longer listed. One of the
// names is required.
func (s *Service) DismissTargets(ctx context.Context, p auth.Principal, tenant, deployment, agent string) (Dismissed, error) {
	if deployment == "" && agent == "" {
		return Dismissed{}, fleet.Invalid("deployment", "a deployment, an agent, or both are required")
	}
	var out Dismissed
	err := s.store.Update(ctx, func(tx store.Tx) error {
		out = Dismissed{}
		t, err := deployable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		if deployment != "" {
			if _, err := tx.Deployments().ByName(ctx, t.ID, deployment); err != nil {
				return fmt.Errorf("deployment %q: %w", deployment, err)
			}
		}
		for f := (store.DetachedFilter{Deployment: deployment, Agent: agent}); ; {
			f.Page.Limit = dismissedAtOnce
			found, err := tx.Targets().Detached(ctx, t.ID, f)
			if err != nil {
				return err
			}
			if err := s.dismiss(ctx, tx, p, found, &out); err != nil {
				return err
			}
			if len(found) < dismissedAtOnce {
				return dismissedNobody(ctx, tx, t.ID, agent, out)
			}
			last := found[len(found)-1]
			f.Page.After, f.Page.AfterID = last.DeploymentName, string(last.ID)
		}
	})
	return out, err
}

const dismissedAtOnce = 500

// dismissedNobody returns an error if nothing was found because the agent never existed.
func dismissedNobody(ctx context.Context, tx store.Tx, tenant fleet.TenantID, agent string, out Dismissed) error {
	if agent == "" || len(out.Targets)+out.Kept > 0 {
		return nil
	}
	if _, err := tx.Agents().ByName(ctx, tenant, agent); err != nil {
		return fmt.Errorf("agent %q: %w", agent, err)
	}
	return nil
}

// dismiss removes unmanaged targets, with an audit record and an event for each.
func (s *Service) dismiss(ctx context.Context, tx store.Tx, p auth.Principal, targets []fleet.Target, out *Dismissed) error {
	for _, t := range targets {
		if t.AgentID != "" && !rollout.Released(t) {
			out.Kept++
			continue
		}
		if err := tx.Targets().Remove(ctx, t.TenantID, t.ID); err != nil {
			return err
		}
		d := fleet.Deployment{TenantID: t.TenantID, ID: t.DeploymentID, Name: t.DeploymentName}
		if err := s.record(ctx, tx, p, d, "target.dismiss", fleet.ReasonTargetDismissed, fmt.Sprintf("agent %q is no longer listed", t.AgentName)); err != nil {
			return err
		}
		out.Targets = append(out.Targets, t)
	}
	return nil
}
