package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/placement"
	"github.com/kedge-dev/kedge/server/internal/reposync"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// undeclare ends a deployment that a file no longer lists. Its objects are deleted only if the same file of the
// same repository demanded it while it listed the deployment, and now lists others, or explicitly none; and
// never while an agent is ahead of the server, or may be.
func (s *Service) undeclare(ctx context.Context, tx store.Tx, p auth.Principal, t fleet.Tenant, look reposync.ConfigFile, d fleet.Declaration) error {
	stated := d.Prune && d.RepoURL == look.Config.RepoURL && d.File == look.Path
	if !stated || look.State != fleet.ConfigApplied || !look.File.Lists {
		why := fmt.Sprintf("%s of %s does not declare it any more", d.File, d.RepoURL)
		return s.releaseDeclared(ctx, tx, p, t, d, why)
	}
	deployment, err := tx.Deployments().Get(ctx, t.ID, d.DeploymentID)
	if err != nil {
		return err
	}
	targets, err := tx.Targets().OfDeployment(ctx, t.ID, d.DeploymentID)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(targets, s.planner.Ahead) {
		// The prune setting may be as old as the restored backup.
		return s.releaseDeclared(ctx, tx, p, t, d, fmt.Sprintf("%s of %s does not declare it, and its agent is ahead of the server", d.File, d.RepoURL))
	}
	if err := tx.Declarations().Remove(ctx, t.ID, d.DeploymentID); err != nil {
		return err
	}
	_, err = s.delete(ctx, tx, p, deployment, placement.PruneObjects)
	return err
}

// releaseDeclared releases a deployment: its objects stay, and it stays listed until it is declared again or
// deleted.
func (s *Service) releaseDeclared(ctx context.Context, tx store.Tx, p auth.Principal, t fleet.Tenant, by fleet.Declaration, why string) error {
	was, err := tx.Deployments().Get(ctx, t.ID, by.DeploymentID)
	if err != nil || !was.DeletedAt.IsZero() {
		return err
	}
	d := was
	d.Environment = environmentOfReleased(by.AgentName)
	if err := s.ensureAgentEnvironment(ctx, tx, t.ID, d.Environment, noAgent); err != nil {
		return err
	}
	if err := s.move(ctx, tx, t, was, &d); err != nil {
		return err
	}
	// It is released immediately, independent of its source, and its pending spec is dropped.
	if err := tx.PendingSpecs().Remove(ctx, t.ID, d.ID); err != nil {
		return err
	}
	if err := s.edited(ctx, tx, p, t, d, "deployment.release", why+": its objects stay"); err != nil {
		return err
	}
	by.ReleasedAt = s.cfg.Now()
	return tx.Declarations().Put(ctx, by)
}

// releaseAll releases the declared deployments of an agent that is about to be deleted. Its targets are
// detached with it, even during a suspension: no agent is left to get anything.
func (s *Service) releaseAll(ctx context.Context, tx store.Tx, a fleet.Agent) error {
	live, err := liveDeclarations(ctx, tx, a.TenantID, a.Name)
	if err != nil || len(live) == 0 {
		return err
	}
	if err := s.ensureAgentEnvironment(ctx, tx, a.TenantID, environmentOfReleased(a.Name), noAgent); err != nil {
		return err
	}
	env, err := environmentByName(ctx, tx, a.TenantID, environmentOfReleased(a.Name))
	if err != nil {
		return err
	}
	for _, by := range live {
		d, err := tx.Deployments().Get(ctx, a.TenantID, by.DeploymentID)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if err := tx.PendingSpecs().Remove(ctx, a.TenantID, d.ID); err != nil {
			return err
		}
		d.Environment, d.EnvironmentTenant, d.EnvironmentID = env.Name, env.TenantID, env.ID
		if err := tx.Deployments().Update(ctx, d); err != nil {
			return err
		}
		by.ReleasedAt = s.cfg.Now()
		if err := tx.Declarations().Put(ctx, by); err != nil {
			return err
		}
	}
	return dropAgentEnvironments(ctx, tx, a.TenantID, a.Name)
}
