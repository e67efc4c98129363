package kubeapi

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// The delays between attempts to process a resource after an error.
const (
	minRetry = 20 * time.Millisecond
	maxRetry = 30 * time.Second
)

// recheck is after what time a resource that waits for something is processed again, in case that no event reported the
// change that it waits for.
const recheck = time.Minute

// missingRetry is the time between attempts to look for missing resources.
const missingRetry = time.Second

// maxEmptied is the number of namespaces that are looked at later. More are looked at when the server starts.
const maxEmptied = 1000

// shared is what the controllers of all kinds use.
type shared struct {
	control Control
	client  client.Client // writes, and reads without a cache
	cached  *caches       // reads resources
	tenants *tenants
	watches *watches
	index   *index
	// statuses are those of GitOpsDeployments.
	statuses *statuses
	cluster  *cluster
	log      *slog.Logger
	// enqueue processes a resource again.
	enqueue func(resource)
	// emptied gets the namespaces whose last resource is gone.
	emptied chan string
}

// resource identifies a custom resource.
type resource struct {
	kind string
	types.NamespacedName
}

// kind is how one kind of resource is processed.
type kind interface {
	object() client.Object
	// reconcile processes one resource, which may not exist any more. It is called again after the returned time, if that
	// is not zero.
	reconcile(ctx context.Context, name types.NamespacedName) (time.Duration, error)
}

// controllers has one queue for each kind.
type controllers struct {
	shared *shared
	mu     sync.Mutex
	queues map[string]queue
}

// queue is the queue of a kind; turns orders it.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	turns *turns
}

// newControllers adds the controllers to a manager. ctx ends with the manager.
func newControllers(ctx context.Context, s *Server, m manager.Manager) (*controllers, error) {
	cs := &controllers{queues: map[string]queue{}}
	sh := &shared{control: s.control, client: m.GetClient(), index: newIndex(), statuses: newStatuses(), log: s.cfg.Log, enqueue: cs.enqueue, emptied: make(chan string, maxEmptied)}
	sh.tenants, sh.cluster = newTenants(s.control, m.GetAPIReader()), &cluster{reader: m.GetAPIReader()}
	var err error
	if sh.cached, err = newCaches(m); err != nil {
		return nil, err
	}
	watches, err := newWatches(ctx, m.GetConfig(), cs.enqueue)
	if err != nil {
		return nil, err
	}
	sh.watches, cs.shared = watches, sh
	for name, k := range map[string]kind{
		v1alpha1.KindGitOpsDeployment:     &deploymentKind{sh},
		v1alpha1.KindManagedEnvironment:   &environmentKind{sh},
		v1alpha1.KindRepositoryCredential: &credentialKind{sh},
		v1alpha1.KindSyncRun:              newRunKind(sh),
	} {
		if err := cs.add(m, name, k, s.cfg.Workers); err != nil {
			return nil, fmt.Errorf("watching %s resources: %w", name, err)
		}
	}
	return cs, nil
}

func (cs *controllers) add(m manager.Manager, name string, k kind, workers int) error {
	turns := newTurns()
	c, err := controller.New(strings.ToLower(name), m, controller.Options{
		MaxConcurrentReconciles: workers, Reconciler: reconciler{k, turns},
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetry, maxRetry),
	})
	if err != nil {
		return err
	}
	var relevant []predicate.Predicate
	if name == v1alpha1.KindGitOpsDeployment { // there are many, and each has many statuses
		relevant = append(relevant, cs.notOwnStatus())
	}
	if err := c.Watch(source.Kind(cs.shared.cached.byKind[name], k.object(), turns.handler(), relevant...)); err != nil {
		return err
	}
	return c.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		cs.mu.Lock()
		defer cs.mu.Unlock()
		cs.queues[name] = queue{q, turns}
		return nil
	}))
}

// notOwnStatus drops updates that the server makes: of its finalizer, and of the status to what the server wants.
func (cs *controllers) notOwnStatus() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, b := e.ObjectOld, e.ObjectNew
		if a.GetUID() != b.GetUID() || a.GetGeneration() != b.GetGeneration() || a.GetDeletionTimestamp().IsZero() != b.GetDeletionTimestamp().IsZero() ||
			!slices.Equal(otherFinalizers(a), otherFinalizers(b)) || !controllerutil.ContainsFinalizer(b, v1alpha1.ServerFinalizer) ||
			!maps.Equal(a.GetAnnotations(), b.GetAnnotations()) || !maps.Equal(a.GetLabels(), b.GetLabels()) {
			return true
		}
		cr, ok := b.(*v1alpha1.GitOpsDeployment)
		return !ok || !cs.shared.statuses.wants(resource{v1alpha1.KindGitOpsDeployment, client.ObjectKeyFromObject(cr)}, cr.Status)
	}}
}

func otherFinalizers(o client.Object) []string {
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(name string) bool { return name == v1alpha1.ServerFinalizer })
}

type reconciler struct {
	kind
	turns *turns
}

func (r reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.turns.start(req.NamespacedName)
	after, err := r.reconcile(ctx, req.NamespacedName)
	if apierrors.IsConflict(err) { // the cache is behind
		return reconcile.Result{RequeueAfter: minRetry}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

func (cs *controllers) enqueue(r resource) {
	cs.mu.Lock()
	q, ok := cs.queues[r.kind]
	cs.mu.Unlock()
	if ok { // otherwise every resource is processed when the queue starts
		q.turns.enqueue(q.TypedRateLimitingInterface, r.NamespacedName, priorityStatus)
	}
}

// changed processes the resources again that changes of the server concern.
func (cs *controllers) changed(batch []store.Change) {
	for _, c := range batch {
		for _, r := range cs.shared.index.concerned(c) {
			cs.enqueue(r)
		}
	}
}
