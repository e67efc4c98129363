package store

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Owners stores which Kubernetes resource declares a resource. A row is deleted with its resource.
type Owners interface {
	// Put inserts or replaces the owner of a resource. For a deployment it records ChangeDeployment.
	Put(ctx context.Context, o fleet.Owned) error
	// Remove deletes the owner of a resource, if it has one. For a deployment it records ChangeDeployment.
	Remove(ctx context.Context, tenant fleet.TenantID, kind fleet.OwnedKind, id string) error
	// Of returns the owners of resources of one kind, sorted by id.
	Of(ctx context.Context, tenant fleet.TenantID, kind fleet.OwnedKind, ids []string) ([]fleet.Owned, error)
	// ByOwner returns the resources of a tenant that a Kubernetes resource with this kind and name declares or declared,
	// sorted by kind and id.
	ByOwner(ctx context.Context, tenant fleet.TenantID, kind, name string) ([]fleet.Owned, error)
	// All returns every resource of a tenant that has an owner, sorted by kind and id.
	All(ctx context.Context, tenant fleet.TenantID) ([]fleet.Owned, error)
	// ListAllTenants returns the resources of one kind that have an owner, sorted by tenant and id.
	ListAllTenants(ctx context.Context, kind fleet.OwnedKind) ([]fleet.Owned, error)
	// NamespaceAllTenants returns the tenant of the Kubernetes namespace with this UID.
	NamespaceAllTenants(ctx context.Context, uid string) (fleet.Owned, error)
}
