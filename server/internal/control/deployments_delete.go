package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// DeleteDeployment turns every target into a tombstone. The operation completes, and the deployment
// is no longer listed, when its agents have carried them out; its name is free at once. While its
// environment, a tenant or the fleet is suspended it is refused: nothing may change in a cluster then.
func (s *Service) DeleteDeployment(ctx context.Context, p auth.Principal, tenant, name string, match Match) (fleet.Operation, error) {
	return s.deleteDeployment(ctx, p, tenant, name, match, deleteObjects)
}

// DeleteDeploymentKeepObjects deletes a deployment and no object: agents let go of its targets, as they
// do when a target leaves its environment. It is refused when DeleteDeployment is.
func (s *Service) DeleteDeploymentKeepObjects(ctx context.Context, p auth.Principal, tenant, name string, match Match) (fleet.Operation, error) {
	return s.deleteDeployment(ctx, p, tenant, name, match, keepObjects)
}

// objectFate says what becomes of the objects of a deployment that is deleted.
type objectFate int

const (
	deleteObjects objectFate = iota // agents delete them, by tombstones, because a user has asked for that
	pruneObjects                    // agents delete them, by tombstones, because a commit says so
	keepObjects                     // they stay in their clusters, and nobody manages them
)

func (s *Service) deleteDeployment(
	ctx context.Context, p auth.Principal, tenant, name string, match Match, fate objectFate,
) (fleet.Operation, error) {
	var operation fleet.Operation
	err := s.store.Update(ctx, func(tx store.Tx) error {
		_, d, err := s.deployableDeployment(ctx, tx, p, tenant, name)
		if err != nil {
			return err
		}
		if err := match.check(string(d.ID), d.Spec); err != nil {
			return err
		}
		if err := notDeclared(ctx, tx, d, "deleted"); err != nil {
			return err
		}
		operation, err = s.delete(ctx, tx, p, d, fate)
		return err
	})
	return operation, err
}

// delete is DeleteDeployment, whoever asks for it.
func (s *Service) delete(ctx context.Context, tx store.Tx, p auth.Principal, d fleet.Deployment, fate objectFate) (fleet.Operation, error) {
	held, err := newHolds(tx).around(ctx, d)
	if err != nil {
		return fleet.Operation{}, err
	}
	if held != "" {
		return fleet.Operation{}, fleet.Conflict("deployment %q cannot be deleted now: %s", d.Name, held)
	}
	operation, err := s.openOperation(ctx, tx, p, fleet.Operation{
		TenantID: d.TenantID, Action: actionDelete, Kind: "deployment", Name: d.Name, ResourceID: string(d.ID), State: fleet.OperationInProgress,
	})
	if err != nil {
		return fleet.Operation{}, err
	}
	message := "was deleted"
	if fate == keepObjects {
		message = "was deleted, and its objects are kept"
	}
	if err := s.record(ctx, tx, p, d, "deployment.delete", "DeploymentDeleted", message); err != nil {
		return fleet.Operation{}, err
	}
	if err := s.remove(ctx, tx, d, fate); err != nil {
		return fleet.Operation{}, err
	}
	return tx.Operations().Get(ctx, d.TenantID, operation.ID)
}

// remove marks d as deleted, ends its runs and makes tombstones of the targets that an agent may
// have heard of, or detaches them. The others go at once, and with the last one d itself.
func (s *Service) remove(ctx context.Context, tx store.Tx, d fleet.Deployment, fate objectFate) error {
	if err := s.endRuns(ctx, tx, d, "its deployment was deleted"); err != nil {
		return err
	}
	if err := tx.PendingSpecs().Remove(ctx, d.TenantID, d.ID); err != nil {
		return err
	}
	if err := tx.Deployments().MarkDeleted(ctx, d.TenantID, d.ID, s.cfg.Now()); err != nil {
		return err
	}
	targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	w, err := destinationOf(ctx, tx, d)
	if err != nil {
		return err
	}
	d.Policy = w.grant.Applied(d.Policy)
	handOvers := newHandOvers(s, tx, nil)
	for _, t := range targets {
		if err := s.bury(ctx, tx, d, t, fate, handOvers); err != nil {
			return fmt.Errorf("burying target %s: %w", t.ID, err)
		}
	}
	// What others keep for it they keep for nobody.
	if err := handOvers.refresh(ctx, d.TenantID, func(h fleet.HandOver) bool { return h.To == d.ID }); err != nil {
		return err
	}
	return s.removeIfEmpty(ctx, tx, d.TenantID, d.ID)
}

// bury makes a tombstone of a target, unless that is not what is due: one that was detached has let
// its objects go, and they stay; one without an agent can be told nothing; one that nobody heard of
// has nothing to delete. When objects are kept the target is detached instead.
func (s *Service) bury(ctx context.Context, tx store.Tx, d fleet.Deployment, t fleet.Target, fate objectFate, handOvers *handOvers) error {
	unheard := t.Desired.Version == (fleet.Version{}) && t.Observed.Version == (fleet.Version{})
	switch {
	case t.AgentID == "", letGo(t), unheard:
		return tx.Targets().Remove(ctx, t.TenantID, t.ID)
	case t.Desired.Tombstone, !t.DetachedAt.IsZero():
		return nil // on its way: removed when its agent has answered
	case fate == keepObjects:
		return s.detach(ctx, tx, t, "the deployment was deleted with its objects kept", false)
	}
	want := fleet.Desired{
		Version: s.next(newest(t)), Namespace: d.Namespace, Policy: d.Policy, SourceRevision: d.SourceRevision,
		Tombstone: true, Consent: fate == deleteObjects,
	}
	if t.Desired.SourceRevision != d.SourceRevision && t.Desired.Digest != "" {
		want.Namespace, want.Policy, want.SourceRevision = t.Desired.Namespace, t.Desired.Policy, t.Desired.SourceRevision
	}
	var err error
	if want.HandOvers, err = handOvers.of(ctx, t, want); err != nil {
		return err
	}
	return tx.Targets().SetDesired(ctx, t.TenantID, t.ID, want)
}

// letGo reports whether the agent of a detached target has said that it manages it no longer.
func letGo(t fleet.Target) bool {
	return t.Desired.Detached && t.Observed.Sync == fleet.SyncDetached && t.Observed.Version == t.Desired.Version
}

// letGoOf removes a target that was let go, if a deleted deployment waits for just that. Otherwise it
// stays listed.
func (s *Service) letGoOf(ctx context.Context, tx store.Tx, t fleet.Target) error {
	d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
	if err != nil || d.DeletedAt.IsZero() {
		return err
	}
	return s.targetGone(ctx, tx, t)
}

// targetGone removes a target whose tombstone was carried out, or that nobody can carry out any
// more, and with the last one of a deleted deployment the deployment.
func (s *Service) targetGone(ctx context.Context, tx store.Tx, t fleet.Target) error {
	d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
	if err != nil {
		return err
	}
	run, err := tx.Runs().WaitingForTarget(ctx, t.TenantID, t.ID)
	awaited := err == nil
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if awaited {
		rt := fleet.RunTarget{TargetID: t.ID, Version: t.Desired.Version, Done: true, Message: "no longer waited for: it has left"}
		if err := tx.Runs().SetTarget(ctx, t.TenantID, run.ID, rt); err != nil {
			return err
		}
	}
	if err := tx.Targets().Remove(ctx, t.TenantID, t.ID); err != nil {
		return err
	}
	if err := s.tell(ctx, tx, fleet.Event{
		TenantID: t.TenantID, Type: fleet.EventNormal, Reason: "TargetDeleted", Agent: t.AgentName, Deployment: d.Name,
		Message: goneMessage(t) + wording.Suffix(t.Observed.Message),
	}); err != nil {
		return err
	}
	if !d.DeletedAt.IsZero() {
		return s.removeIfEmpty(ctx, tx, d.TenantID, d.ID)
	}
	if !awaited {
		return nil
	}
	done, err := s.newSettler(tx).conclude(ctx, run)
	if err != nil || !done {
		return err
	}
	return s.nextRun(ctx, tx, d.TenantID, d.ID)
}

func goneMessage(t fleet.Target) string {
	switch {
	case t.AgentID == "":
		return "the agent was deleted: what it had applied stays"
	case t.Desired.Tombstone:
		return "its objects are gone"
	default:
		return "it was let go: its objects stay"
	}
}

// removeIfEmpty removes a deleted deployment that has no target left, and completes its deletion.
func (s *Service) removeIfEmpty(ctx context.Context, tx store.Tx, tenant fleet.TenantID, id fleet.DeploymentID) error {
	left, err := tx.Targets().PageOfDeployment(ctx, tenant, id, store.TargetFilter{Page: store.Page{Limit: 1}})
	if err != nil || len(left) > 0 {
		return err
	}
	if err := s.finishOperationsOf(ctx, tx, tenant, string(id), actionDelete, ""); err != nil {
		return err
	}
	return tx.Deployments().Remove(ctx, tenant, id)
}

// DismissTarget removes the row of a detached target whose agent was deleted or has let it go: its
// objects stay, and nobody lists them any longer.
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
		if t.AgentID != "" && !letGo(t) {
			return fleet.Conflict("agent %q still manages its part of deployment %q", t.AgentName, d.Name)
		}
		if err := tx.Targets().Remove(ctx, t.TenantID, t.ID); err != nil {
			return err
		}
		return s.record(ctx, tx, p, d, "target.dismiss", "TargetDismissed", fmt.Sprintf("agent %q is no longer listed", t.AgentName))
	})
}
