package kubeapi

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
)

// reportMissing reports what was created by resources of a kind that do not exist any more, when all existing resources are
// known. It repeats what fails.
func (cs *controllers) reportMissing(ctx context.Context, kind string) error {
	if c, ok := cs.shared.cached.byKind[kind]; ok {
		if _, err := c.GetInformer(ctx, newObject(kind)); err != nil || !c.WaitForCacheSync(ctx) {
			return ctx.Err()
		}
	}
	for {
		err := cs.tryReportMissing(ctx, kind)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		cs.shared.log.Warn("looking for missing Kubernetes resources, trying again", obs.Err(err))
		wait.For(ctx, missingRetry)
	}
}

func (cs *controllers) tryReportMissing(ctx context.Context, kind string) error {
	owned, err := cs.shared.control.Owned(ctx, system())
	if err != nil {
		return err
	}
	for _, o := range owned {
		if o.Owner.Kind != kind || !o.MissingSince.IsZero() {
			continue
		}
		exists, err := cs.exists(ctx, o.Owner)
		if err != nil {
			return err
		}
		if exists {
			continue
		}
		if err := cs.shared.control.OwnerMissing(ctx, system(), o.TenantID, o.Owner); err != nil {
			return err
		}
	}
	return nil
}

// reportNamespaces reports a namespace as missing when it is gone after its last resource. Kubernetes deletes a namespace
// after everything in it. A namespace that is deleted while the server is down is reported when the server starts.
func (cs *controllers) reportNamespaces(ctx context.Context) error {
	deleting := map[string]struct{}{}
	for {
		var again <-chan time.Time // only while a namespace is being deleted
		if len(deleting) > 0 {
			again = time.After(missingRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case name := <-cs.shared.emptied:
			deleting[name] = struct{}{}
		case <-again:
		}
		for name := range deleting {
			if done, err := cs.reportNamespace(ctx, name); err != nil {
				cs.shared.log.Warn("looking for a missing namespace, trying again", obs.Err(err))
			} else if done {
				delete(deleting, name)
			}
		}
	}
}

// reportNamespace returns false while a namespace is being deleted.
func (cs *controllers) reportNamespace(ctx context.Context, name string) (done bool, err error) {
	var namespace corev1.Namespace
	err = cs.shared.client.Get(ctx, types.NamespacedName{Name: name}, &namespace)
	if apierrors.IsNotFound(err) {
		return true, cs.tryReportMissing(ctx, kindNamespace)
	}
	return namespace.DeletionTimestamp == nil, err
}

// exists reports whether a resource exists with the same UID. It asks the API server if the cache does not have the
// resource.
func (cs *controllers) exists(ctx context.Context, o fleet.Owner) (bool, error) {
	object, name := newObject(o.Kind), types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	if o.Kind != kindNamespace && cs.shared.cached.Get(ctx, name, object) == nil && string(object.GetUID()) == o.UID {
		return true, nil
	}
	err := cs.shared.client.Get(ctx, name, object)
	switch {
	case err == nil:
		return string(object.GetUID()) == o.UID, nil
	case !apierrors.IsNotFound(err):
		return false, err
	}
	// If the API server does not serve the kind now, nothing is known.
	return !namesObject(err), nil
}

// namesObject reports whether an error says that an object does not exist, and not that the API server does not serve its
// kind.
func namesObject(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != ""
}

// newObject returns an empty object of a kind that owns resources of the server.
func newObject(kind string) client.Object {
	switch kind {
	case v1alpha1.KindGitOpsDeployment:
		return &v1alpha1.GitOpsDeployment{}
	case v1alpha1.KindManagedEnvironment:
		return &v1alpha1.ManagedEnvironment{}
	case v1alpha1.KindRepositoryCredential:
		return &v1alpha1.RepositoryCredential{}
	case kindNamespace:
		return &corev1.Namespace{}
	}
	return &v1alpha1.SyncRun{}
}
