package kubeapi

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// actions are what one kind does with a resource. Both change its status in memory.
type actions[O client.Object] struct {
	apply  func(ctx context.Context, r resource, cr O) error
	delete func(ctx context.Context, r resource, cr O) error
	status func(cr O) any
}

// handle reads a resource, applies or deletes what it declares, and writes its status if it changed.
func handle[T any, O interface {
	*T
	client.Object
}](ctx context.Context, s *shared, r resource, do actions[O]) (time.Duration, error) {
	cr := O(new(T))
	err := s.cached.Get(ctx, r.NamespacedName, cr)
	if apierrors.IsNotFound(err) {
		return 0, s.gone(ctx, r)
	}
	if err != nil {
		return 0, err
	}
	if err := s.replaced(ctx, r, cr); err != nil {
		return 0, err
	}
	err = process(ctx, s, r, cr, do)
	if e := s.index.get(r); e.waiting || e.recheck {
		return recheck, err
	}
	return 0, err
}

// process applies or deletes what a resource declares, and writes its status if it changed.
func process[O client.Object](ctx context.Context, s *shared, r resource, cr O, do actions[O]) error {
	before := cr.DeepCopyObject().(O)
	act := do.apply
	if !cr.GetDeletionTimestamp().IsZero() {
		act = do.delete
	}
	if r.kind == v1alpha1.KindGitOpsDeployment {
		s.statuses.found(r, do.status(cr))
	}
	err := act(ctx, r, cr)
	if r.kind == v1alpha1.KindGitOpsDeployment {
		s.statuses.want(r, do.status(cr))
	}
	if equality.Semantic.DeepEqual(do.status(before), do.status(cr)) {
		if r.kind == v1alpha1.KindGitOpsDeployment {
			s.checkCached(ctx, r, cr.DeepCopyObject().(O), func(now client.Object) bool {
				return equality.Semantic.DeepEqual(do.status(now.(O)), do.status(cr))
			})
		}
		return err
	}
	written := s.client.Status().Update(ctx, cr)
	if err != nil { // that one counts, and the status is written again
		return err
	}
	return client.IgnoreNotFound(written)
}

// checkCached processes a resource again whose cached status has changed during its pass. The watch did not report it if it was
// the status that the server wanted before: then the pass wrote nothing, because it had read an older one.
func (s *shared) checkCached(ctx context.Context, r resource, now client.Object, same func(client.Object) bool) {
	uid := now.GetUID()
	if err := s.cached.Get(ctx, r.NamespacedName, now); err == nil && now.GetUID() == uid && !same(now) {
		s.enqueue(r)
	}
}

// replaced reports that an earlier resource with the same name is missing, if there was one.
func (s *shared) replaced(ctx context.Context, r resource, cr client.Object) error {
	e := s.index.get(r)
	if e.uid == "" || e.uid == cr.GetUID() {
		return nil
	}
	return s.gone(ctx, r)
}

// gone forgets a resource that does not exist any more. What it created and was not deleted is reported as missing its
// owner.
func (s *shared) gone(ctx context.Context, r resource) error {
	e := s.index.get(r)
	if e.uid != "" {
		if err := s.control.OwnerMissing(ctx, system(), e.tenant, missingOwner(r, e)); err != nil {
			return err
		}
	}
	s.index.remove(r)
	s.statuses.forget(r)
	s.watches.use(r)
	s.tenants.forget(e.uid)
	if e.uid != "" && s.index.empty(e.tenant) {
		select {
		case s.emptied <- r.Namespace:
		default:
		}
	}
	return nil
}

func missingOwner(r resource, e entry) fleet.Owner {
	return fleet.Owner{Kind: r.kind, Namespace: r.Namespace, Name: r.Name, UID: string(e.uid)}
}

// releaseAll lets the deletion of a resource complete without a deletion of what it created: its definition is being deleted.
func (s *shared) releaseAll(ctx context.Context, r resource, cr client.Object, tenant fleet.TenantID, finalizers ...string) error {
	if err := s.control.OwnerMissing(ctx, system(), tenant, ownerFor(r.kind, cr)); err != nil {
		return err
	}
	return s.removeFinalizers(ctx, cr, finalizers...)
}
