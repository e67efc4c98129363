package kubeapi

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// secretWatcher processes resources again when a Secret that they name changes. It watches single Secrets, by name, and
// only their metadata: no Secret is kept in memory.
type secretWatcher struct {
	ctx     context.Context // ends the watches
	client  metadata.Interface
	enqueue func(resource)

	mu      sync.Mutex
	watches map[types.NamespacedName]*secretWatch
	used    map[resource]types.NamespacedName
}

type secretWatch struct {
	users map[resource]struct{}
	stop  context.CancelFunc
}

func newSecretWatcher(ctx context.Context, cluster *rest.Config, enqueue func(resource)) (*secretWatcher, error) {
	c, err := metadata.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("connecting to the Kubernetes API server: %w", err)
	}
	return &secretWatcher{
		ctx: ctx, client: c, enqueue: enqueue,
		watches: map[types.NamespacedName]*secretWatch{}, used: map[resource]types.NamespacedName{},
	}, nil
}

// use watches the Secret that a resource names, instead of the one that it named before. The caller reads the Secret
// afterwards.
func (w *secretWatcher) use(r resource, secret types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.used[r] == secret {
		return
	}
	w.releaseLocked(r)
	w.used[r] = secret
	watch, ok := w.watches[secret]
	if !ok {
		ctx, stop := context.WithCancel(w.ctx)
		watch = &secretWatch{users: map[resource]struct{}{}, stop: stop}
		w.watches[secret] = watch
		go w.watch(ctx, secret)
	}
	watch.users[r] = struct{}{}
}

// release ends the watch of the Secret that a resource named.
func (w *secretWatcher) release(r resource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.releaseLocked(r)
}

func (w *secretWatcher) releaseLocked(r resource) {
	secret, ok := w.used[r]
	if !ok {
		return
	}
	delete(w.used, r)
	watch := w.watches[secret]
	delete(watch.users, r)
	if len(watch.users) == 0 {
		watch.stop()
		delete(w.watches, secret)
	}
}

func (w *secretWatcher) watch(ctx context.Context, secret types.NamespacedName) {
	informer := metadatainformer.NewFilteredMetadataInformer(w.client, corev1.SchemeGroupVersion.WithResource("secrets"), secret.Namespace, 0, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", secret.Name).String()
		}).Informer()
	changed := func(any) { w.changed(secret) }
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, DeleteFunc: changed, UpdateFunc: func(_, _ any) { w.changed(secret) },
	})
	if err != nil {
		return // the informer was stopped
	}
	informer.RunWithContext(ctx)
}

func (w *secretWatcher) changed(secret types.NamespacedName) {
	w.mu.Lock()
	var users []resource
	if watch := w.watches[secret]; watch != nil {
		for r := range watch.users {
			users = append(users, r)
		}
	}
	w.mu.Unlock()
	for _, r := range users {
		w.enqueue(r)
	}
}
