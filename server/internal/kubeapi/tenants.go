package kubeapi

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
)

// tenantControl finds the tenants of namespaces.
type tenantControl interface {
	NamespaceTenant(ctx context.Context, p auth.Principal, namespace fleet.Owner) (fleet.Tenant, error)
}

// ownerControl lists what resources created.
type ownerControl interface {
	Owned(ctx context.Context, p auth.Principal) ([]fleet.Owned, error)
	OwnerMissing(ctx context.Context, p auth.Principal, tenant fleet.TenantID, owner fleet.Owner) error
}

// kindNamespace is the kind of the owners of tenants.
const kindNamespace = "Namespace"

// component is the name of this package in the audit log.
const component = "kubernetes"

// system returns the principal for what concerns all tenants.
func system() auth.Principal {
	return auth.Principal{Name: "system", Component: component, FleetAdmin: true}
}

// tenants finds the tenants of resources.
type tenants struct {
	control tenantControl
	reader  client.Reader

	mu    sync.Mutex
	known map[types.UID]fleet.Tenant // by UID of the resource
}

func newTenants(c tenantControl, reader client.Reader) *tenants {
	return &tenants{control: c, reader: reader, known: map[types.UID]fleet.Tenant{}}
}

// of returns the tenant of a resource that has the finalizer of the server. That finalizer keeps the namespace from being
// deleted, so the namespace that is read here is the one in which the resource was created.
func (t *tenants) of(ctx context.Context, o client.Object) (fleet.Tenant, error) {
	t.mu.Lock()
	known, ok := t.known[o.GetUID()]
	t.mu.Unlock()
	if ok {
		return known, nil
	}
	var namespace corev1.Namespace
	if err := t.reader.Get(ctx, types.NamespacedName{Name: o.GetNamespace()}, &namespace); err != nil {
		return fleet.Tenant{}, fmt.Errorf("reading namespace %q: %w", o.GetNamespace(), err)
	}
	if created := o.GetCreationTimestamp(); namespace.CreationTimestamp.After(created.Time) {
		return fleet.Tenant{}, fmt.Errorf("namespace %q was created after %q, which must have been deleted with an earlier one", namespace.Name, o.GetName())
	}
	tenant, err := t.control.NamespaceTenant(ctx, system(), fleet.Owner{
		Kind: kindNamespace, Name: namespace.Name, UID: string(namespace.UID), Created: namespace.CreationTimestamp.Unix(),
	})
	if err != nil {
		return fleet.Tenant{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[o.GetUID()] = tenant
	return tenant, nil
}

// forget forgets a resource that does not exist any more.
func (t *tenants) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, uid)
}
