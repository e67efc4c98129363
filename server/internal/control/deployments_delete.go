package control

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/placement"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// DeleteDeployment turns every target into a tombstone. The operation completes, and the deployment is no
// longer listed, when its agents have carried them out; its name is free immediately. It is refused while its
// environment, a tenant, or the fleet is suspended, because nothing may change in a cluster then.
func (s *Service) DeleteDeployment(ctx context.Context, p auth.Principal, tenant, name string, match Match) (fleet.Operation, error) {
	return s.deleteDeployment(ctx, p, tenant, name, match, placement.DeleteObjects)
}

// DeleteDeploymentHoldProtected is DeleteDeployment for a Kubernetes resource that waits until all objects are deleted.
// Objects of protected kinds are held until ConfirmPrune confirms their deletion, or until ReleaseProtected ends that.
func (s *Service) DeleteDeploymentHoldProtected(ctx context.Context, p auth.Principal, tenant, name string, match Match) (fleet.Operation, error) {
	return s.deleteDeployment(ctx, p, tenant, name, match, placement.HoldProtected)
}

// ReleaseProtected completes the deletion of the deployments that the Kubernetes resource of p created: objects of protected
// kinds that are held stay in their clusters, unmanaged. It deletes nothing, and changes no deployment that is not being
// deleted.
func (s *Service) ReleaseProtected(ctx context.Context, p auth.Principal, tenant string) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		t, err := deployable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		owned, err := ownedBy(ctx, tx, t.ID, p.Owner, fleet.OwnedDeployment)
		if err != nil {
			return err
		}
		for _, o := range owned {
			d, err := tx.Deployments().Get(ctx, t.ID, fleet.DeploymentID(o.ID))
			if err != nil {
				return err
			}
			if err := s.releaseProtected(ctx, tx, p, d); err != nil {
				return err
			}
		}
		return nil
	})
}

// releaseProtected is ReleaseProtected for one deployment.
func (s *Service) releaseProtected(ctx context.Context, tx store.Tx, p auth.Principal, d fleet.Deployment) error {
	if d.DeletedAt.IsZero() {
		return nil
	}
	targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	released := false
	for _, t := range targets {
		changed, err := s.placer.ReleaseProtected(ctx, tx, t)
		if err != nil {
			return err
		}
		released = released || changed
	}
	if !released {
		return nil
	}
	return s.record(ctx, tx, p, d, "deployment.release-protected", fleet.ReasonReleased,
		"objects of protected kinds are not held any more: they stay in their clusters and are no longer managed")
}

// DeleteDeploymentKeepObjects deletes a deployment and no object: agents stop managing its targets, as when a
// target leaves its environment. It is refused like DeleteDeployment.
func (s *Service) DeleteDeploymentKeepObjects(ctx context.Context, p auth.Principal, tenant, name string, match Match) (fleet.Operation, error) {
	return s.deleteDeployment(ctx, p, tenant, name, match, placement.KeepObjects)
}

func (s *Service) deleteDeployment(
	ctx context.Context, p auth.Principal, tenant, name string, match Match, fate placement.Deletion,
) (fleet.Operation, error) {
	var operation fleet.Operation
	err := s.store.Update(ctx, func(tx store.Tx) error {
		_, d, err := s.deployableDeployment(ctx, tx, p, tenant, name)
		if err != nil {
			return err
		}
		if err := match.check(string(d.ID), d.SpecRevision); err != nil {
			return err
		}
		if err := notDeclared(ctx, tx, d, "deleted"); err != nil {
			return err
		}
		if err := checkOwnerDeletes(ctx, tx, p, deploymentResource(d)); err != nil {
			return err
		}
		operation, err = s.delete(ctx, tx, p, d, fate)
		return err
	})
	return operation, err
}

// delete is DeleteDeployment without authorization.
func (s *Service) delete(ctx context.Context, tx store.Tx, p auth.Principal, d fleet.Deployment, fate placement.Deletion) (fleet.Operation, error) {
	held, err := rollout.NewSuspensions(tx).Around(ctx, d)
	if err != nil {
		return fleet.Operation{}, err
	}
	if !held.IsZero() {
		return fleet.Operation{}, fleet.Conflict("deployment %q cannot be deleted now: %s", d.Name, held)
	}
	if err := notMoving(ctx, tx, d, "deleted"); err != nil {
		return fleet.Operation{}, err
	}
	operation, err := s.openOperation(ctx, tx, p, fleet.Operation{
		TenantID: d.TenantID, Action: rollout.ActionDelete, Kind: "deployment", Name: d.Name, ResourceID: string(d.ID), State: fleet.OperationInProgress,
	})
	if err != nil {
		return fleet.Operation{}, err
	}
	message := "was deleted"
	if fate == placement.KeepObjects {
		message = "was deleted, and its objects are kept"
	}
	if err := s.record(ctx, tx, p, d, "deployment.delete", fleet.ReasonDeploymentDeleted, message); err != nil {
		return fleet.Operation{}, err
	}
	if err := s.placer.RemoveDeployment(ctx, tx, d, fate); err != nil {
		return fleet.Operation{}, err
	}
	return tx.Operations().Get(ctx, d.TenantID, operation.ID)
}

// DismissTarget removes the row of a detached target whose agent was deleted or has released it: its objects
// stay and are no longer listed.
func (s *Service) DismissTarget(ctx context.Context, p auth.Principal, tenant, deployment string, id fleet.TargetID) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		_, d, err := s.deployableDeployment(ctx, tx, p, tenant, deployment)
		if err != nil {
			return err
		}
		t, err := tx.Targets().Get(ctx, d.TenantID, id)
		if err == nil && t.DeploymentID != d.ID {
			err = store.ErrNotFound
		}
		if err != nil {
			return fmt.Errorf("target %q: %w", id, err)
		}
		if err := notMoving(ctx, tx, d, "dismissed"); err != nil {
			return err
		}
		if t.AgentID != "" && !rollout.Released(t) {
			return fleet.Conflict("agent %q still manages its part of deployment %q", t.AgentName, d.Name)
		}
		if err := tx.Targets().Remove(ctx, t.TenantID, t.ID); err != nil {
			return err
		}
		return s.record(ctx, tx, p, d, "target.dismiss", fleet.ReasonTargetDismissed, fmt.Sprintf("agent %q is no longer listed", t.AgentName))
	})
}
