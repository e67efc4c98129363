package kubeapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kedge-dev/kedge/api/v1alpha1"
)

// watches processes resources again when an object changes that they depend on: the Secret that they name, or what a deletion
// waits for. It watches single objects, by name, and only their metadata: no Secret is kept in memory.
type watches struct {
	ctx     context.Context // ends the watches
	client  metadata.Interface
	enqueue func(resource)

	mu     sync.Mutex
	active map[watched]*objectWatch
	used   map[resource][]watched
}

// watched identifies an object.
type watched struct {
	kind schema.GroupVersionResource
	types.NamespacedName
}

func secretNamed(name types.NamespacedName) watched {
	return watched{corev1.SchemeGroupVersion.WithResource("secrets"), name}
}

func namespaceNamed(name string) watched {
	return watched{corev1.SchemeGroupVersion.WithResource("namespaces"), types.NamespacedName{Name: name}}
}

// definitionNamed identifies the definition of a kind of resource.
func definitionNamed(kind string) watched {
	return watched{
		schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		types.NamespacedName{Name: definitionName(kind)},
	}
}

func definitionName(kind string) string {
	return strings.ToLower(kind) + "s." + v1alpha1.GroupVersion.Group
}

type objectWatch struct {
	users map[resource]struct{}
	stop  context.CancelFunc
}

func newWatches(ctx context.Context, cluster *rest.Config, enqueue func(resource)) (*watches, error) {
	c, err := metadata.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("connecting to the Kubernetes API server: %w", err)
	}
	return &watches{ctx: ctx, client: c, enqueue: enqueue, active: map[watched]*objectWatch{}, used: map[resource][]watched{}}, nil
}

// use watches the objects that a resource depends on, instead of those that it depended on before. The caller reads them
// afterwards.
func (w *watches) use(r resource, objects ...watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.used[r] {
		if !slices.Contains(objects, o) {
			w.endLocked(r, o)
		}
	}
	for _, o := range objects {
		if slices.Contains(w.used[r], o) {
			continue
		}
		watch, ok := w.active[o]
		if !ok {
			ctx, stop := context.WithCancel(w.ctx)
			watch = &objectWatch{users: map[resource]struct{}{}, stop: stop}
			w.active[o] = watch
			go w.watch(ctx, o)
		}
		watch.users[r] = struct{}{}
	}
	w.used[r] = objects
	if len(objects) == 0 {
		delete(w.used, r)
	}
}

// endLocked ends the watch of an object if only this resource depends on it.
func (w *watches) endLocked(r resource, o watched) {
	watch := w.active[o]
	delete(watch.users, r)
	if len(watch.users) == 0 {
		watch.stop()
		delete(w.active, o)
	}
}

func (w *watches) watch(ctx context.Context, o watched) {
	informer := metadatainformer.NewFilteredMetadataInformer(w.client, o.kind, o.Namespace, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", o.Name).String()
	}).Informer()
	changed := func(any) { w.changed(o) }
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, DeleteFunc: changed, UpdateFunc: func(_, _ any) { w.changed(o) },
	})
	if err != nil {
		return // the informer was stopped
	}
	informer.RunWithContext(ctx)
}

func (w *watches) changed(o watched) {
	w.mu.Lock()
	var users []resource
	if watch := w.active[o]; watch != nil {
		for r := range watch.users {
			users = append(users, r)
		}
	}
	w.mu.Unlock()
	for _, r := range users {
		w.enqueue(r)
	}
}
