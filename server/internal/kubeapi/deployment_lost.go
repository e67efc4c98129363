package kubeapi

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
)

// A database that was restored from a backup may not have the deployment of a resource that is being deleted, although its
// objects exist. The deletion of such a resource first stores the deployment again:
//
//	no deployment, was accepted ──> StoredForDeletion ──(Synced: the agents manage the objects again)──> Deleting
//	deployment exists ─────────────────────────────────────────────────────────────────────────────────> Deleting
//	Deleting, no deployment ──> the resource goes
//
// The condition Deleted holds this state. It is written before the deletion starts, so that a completed deletion is not
// mistaken for a deployment that was lost.

// readyToDelete reports whether the deployment of a resource can be deleted now. If it returns false, the resource is
// processed again.
func (k *deploymentKind) readyToDelete(ctx context.Context, r resource, e entry, tenant fleet.Tenant, p auth.Principal, cr *v1alpha1.GitOpsDeployment) (bool, error) {
	state := meta.FindStatusCondition(cr.Status.Conditions, v1alpha1.ConditionDeleted)
	if !meta.IsStatusConditionTrue(cr.Status.Conditions, v1alpha1.ConditionAccepted) || (state != nil && state.Reason != string(fleet.ReasonStoredForDeletion)) {
		return true, nil
	}
	owned, err := k.control.OwnedDeployments(ctx, p, tenant.Name, 1)
	if err != nil {
		return false, err
	}
	if len(owned) == 0 {
		return false, k.storeForDeletion(ctx, r, tenant, p, cr)
	}
	if state != nil && owned[0].DeletedAt.IsZero() && owned[0].Sync != fleet.SyncSynced {
		e.subjects = deploymentSubjects(owned[0].DeploymentView)
		k.index.put(r, e)
		return false, nil
	}
	set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionDeleted, metav1.ConditionFalse, deletionCause(owned[0].DeploymentView))
	k.enqueue(r)
	return false, nil
}

// storeForDeletion stores the deployment of a resource again.
func (k *deploymentKind) storeForDeletion(ctx context.Context, r resource, tenant fleet.Tenant, p auth.Principal, cr *v1alpha1.GitOpsDeployment) error {
	err := k.store(ctx, tenant, p, cr)
	cause, final := refused(err)
	if err != nil && !final {
		return err
	}
	message := "the server did not have the deployment: it is stored again, and deleted when it is Synced"
	if final {
		message = "the server does not have the deployment and cannot store it again: " + cause.Message +
			"; delete the objects with kubectl, and remove the finalizers of this resource"
	}
	set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionDeleted, metav1.ConditionFalse, fleet.Cause{Reason: fleet.ReasonStoredForDeletion, Message: message})
	if !final {
		k.enqueue(r)
	}
	return nil
}
