package kubeapi

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
)

var definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// newDefinition returns a custom resource definition of which only the metadata is read.
func newDefinition() *metav1.PartialObjectMetadata {
	var out metav1.PartialObjectMetadata
	out.SetGroupVersionKind(definitionKind)
	return &out
}

// ownerFor returns a resource as an owner.
func ownerFor(kind string, o client.Object) fleet.Owner {
	return fleet.Owner{
		Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()),
		Generation: o.GetGeneration(), Created: o.GetCreationTimestamp().Unix(),
	}
}

// principal returns the caller of control that acts for a resource, with a role in the tenant of its namespace only.
func principal(tenant fleet.Tenant, owner fleet.Owner, o client.Object) auth.Principal {
	return auth.Principal{
		Name: owner.String(), Component: component, Roles: map[fleet.TenantID]fleet.Role{tenant.ID: fleet.RoleAdmin}, Owner: owner,
		AcceptRewound:    o.GetAnnotations()[v1alpha1.AcceptRewound] == strconv.FormatInt(o.GetGeneration(), 10),
		AbandonDeletions: o.GetAnnotations()[v1alpha1.AbandonDeletions] == "true",
	}
}

// ensureFinalizer sets the finalizer of the server. It fails if the resource changed since it was read.
func (s *shared) ensureFinalizer(ctx context.Context, o client.Object) error {
	if controllerutil.ContainsFinalizer(o, v1alpha1.ServerFinalizer) {
		return nil
	}
	before := o.DeepCopyObject().(client.Object)
	controllerutil.AddFinalizer(o, v1alpha1.ServerFinalizer)
	if err := s.client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("setting the finalizer: %w", err)
	}
	return nil
}

// removeFinalizers lets a deletion of a resource complete. It fails if the resource changed since it was read.
func (s *shared) removeFinalizers(ctx context.Context, o client.Object, names ...string) error {
	before := o.DeepCopyObject().(client.Object)
	removed := false
	for _, name := range names {
		removed = controllerutil.RemoveFinalizer(o, name) || removed
	}
	if !removed {
		return nil
	}
	err := s.client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer: %w", err)
	}
	return nil
}

// definitionDeleted reports whether a resource is being deleted because its definition is, or was. That deletes all
// resources of the kind, and says nothing about what they created. While a resource has a finalizer, its definition exists,
// unless someone removed the finalizer of the definition and created it again later.
func (s *shared) definitionDeleted(ctx context.Context, kind string, o client.Object) (bool, error) {
	definition := newDefinition()
	if err := s.client.Get(ctx, types.NamespacedName{Name: definitionName(kind)}, definition); err != nil {
		return false, fmt.Errorf("reading the definition of %s: %w", kind, err)
	}
	return definition.DeletionTimestamp != nil || o.GetDeletionTimestamp().Before(&definition.CreationTimestamp), nil
}
