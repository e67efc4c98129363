package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// configMapWatcher watches the cluster from outside. It, and not the status of Kedge, decides when something is
// done.
type configMapWatcher struct {
	mu      sync.Mutex
	values  map[string]string
	changed time.Time
	wake    chan struct{}
}

// watchConfigMaps creates a namespace and watches its ConfigMaps.
func watchConfigMaps(ctx context.Context, kube dynamic.Interface, namespace string) (*configMapWatcher, error) {
	ns := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
	}}
	if _, err := kube.Resource(namespaces).Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	w, err := kube.Resource(configMaps).Namespace(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	cw := &configMapWatcher{values: map[string]string{}, wake: make(chan struct{}, 1)}
	go func() {
		for e := range w.ResultChan() {
			if o, ok := e.Object.(*unstructured.Unstructured); ok {
				cw.see(o)
			}
		}
	}()
	return cw, nil
}

func (w *configMapWatcher) see(o *unstructured.Unstructured) {
	value, _, _ := unstructured.NestedString(o.Object, "data", "value")
	w.mu.Lock()
	w.values[o.GetName()], w.changed = value, time.Now()
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// await waits until all objects of an app have a value.
func (w *configMapWatcher) await(ctx context.Context, app int, value string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, fmt.Errorf("value %q is not visible after 5 minutes", value))
	defer cancel()
	for !w.has(app, value) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.wake:
		}
	}
	return nil
}

func (w *configMapWatcher) has(app int, value string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range objectsPerApp {
		if w.values[fmt.Sprintf("app-%04d-%d", app, i)] != value {
			return false
		}
	}
	return true
}

// lastChange is when the newest change was seen.
func (w *configMapWatcher) lastChange() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}
