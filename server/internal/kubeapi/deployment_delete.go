package kubeapi

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// delete deletes what the resource created, and then lets the resource go.
func (k *deploymentKind) delete(ctx context.Context, r resource, cr *v1alpha1.GitOpsDeployment) error {
	if !controllerutil.ContainsFinalizer(cr, v1alpha1.ServerFinalizer) && !controllerutil.ContainsFinalizer(cr, v1alpha1.ResourcesFinalizer) {
		return nil
	}
	if controllerutil.ContainsFinalizer(cr, v1alpha1.ResourcesFinalizer) { // a deletion that waits ends with them
		k.watches.use(r, namespaceNamed(cr.Namespace), definitionNamed(r.kind))
	}
	removed, err := k.definitionDeleted(ctx, r.kind, cr)
	if err != nil {
		return err
	}
	tenant, err := k.tenants.of(ctx, cr)
	if err != nil {
		return err
	}
	if removed {
		return k.releaseAll(ctx, r, cr, tenant.ID, v1alpha1.ServerFinalizer, v1alpha1.ResourcesFinalizer)
	}
	e := entry{tenant: tenant.ID, uid: cr.UID, waiting: true, subjects: k.index.get(r).subjects}
	k.index.put(r, e)
	p := principal(tenant, ownerFor(r.kind, cr), cr)
	if ready, err := k.readyToDelete(ctx, r, e, tenant, p, cr); err != nil || !ready {
		return err
	}
	hold, err := k.holdsProtected(ctx, cr)
	if err != nil {
		return err
	}
	left, err := k.deleteDeployments(ctx, p, tenant, hold)
	if cause, final := refused(err); final {
		set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionDeleted, metav1.ConditionFalse, cause)
		return nil
	}
	if err != nil {
		return err
	}
	if len(left) > 0 && controllerutil.ContainsFinalizer(cr, v1alpha1.ResourcesFinalizer) {
		e.subjects = deploymentSubjects(left[0].DeploymentView)
		k.index.put(r, e)
		deletionStatus(cr, left[0].DeploymentView)
		return nil
	}
	return k.removeFinalizers(ctx, cr, v1alpha1.ServerFinalizer, v1alpha1.ResourcesFinalizer)
}

// holdsProtected reports whether objects of protected kinds are held until a user confirms their deletion. Without the
// finalizer, nobody waits for them. A namespace that is being deleted must not wait either, possibly for ever.
func (k *deploymentKind) holdsProtected(ctx context.Context, cr *v1alpha1.GitOpsDeployment) (bool, error) {
	if !controllerutil.ContainsFinalizer(cr, v1alpha1.ResourcesFinalizer) {
		return false, nil
	}
	var namespace corev1.Namespace
	if err := k.client.Get(ctx, types.NamespacedName{Name: cr.Namespace}, &namespace); err != nil {
		if apierrors.IsNotFound(err) && namesObject(err) {
			return false, nil
		}
		return false, err
	}
	return namespace.DeletionTimestamp == nil, nil
}

// deleteDeployments starts the deletion of what a resource created, and returns what is left of it. With hold, objects of
// protected kinds are held; without it, a hold ends and they stay.
func (k *deploymentKind) deleteDeployments(ctx context.Context, p auth.Principal, tenant fleet.Tenant, hold bool) ([]control.OwnedDeployment, error) {
	owned, err := k.control.OwnedDeployments(ctx, p, tenant.Name, 1)
	if err != nil {
		return nil, err
	}
	started := false
	for _, d := range owned {
		if !d.DeletedAt.IsZero() {
			continue
		}
		remove := k.control.DeleteDeployment
		if hold {
			remove = k.control.DeleteDeploymentHoldProtected
		}
		if _, err := remove(ctx, p, tenant.Name, d.Name, control.Match{}); err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		started = true
	}
	if !hold && slices.ContainsFunc(owned, holdsProtected) {
		if err := k.control.ReleaseProtected(ctx, p, tenant.Name); err != nil {
			return nil, err
		}
		started = true
	}
	if !started {
		return owned, nil
	}
	return k.control.OwnedDeployments(ctx, p, tenant.Name, 1)
}

// holdsProtected reports whether a target of a deployment that is being deleted holds protected kinds.
func holdsProtected(d control.OwnedDeployment) bool {
	return slices.ContainsFunc(d.Targets, func(t control.TargetView) bool { return t.Desired.HoldProtected })
}
