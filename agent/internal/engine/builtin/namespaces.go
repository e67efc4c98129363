package builtin

import (
	"context"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

var namespacesResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// namespaceWaits watches namespaces that do not exist, each by its name and its metadata, and only while a target waits
// for it. Where that is not allowed, what failed is tried again by its backoff alone. Safe for concurrent use.
type namespaceWaits struct {
	client     metadata.Interface // with the rights of the agent itself
	log        *slog.Logger
	timing     timing
	background context.Context // ends with the engine

	mu    sync.Mutex
	names map[string]*namespaceWait
}

type namespaceWait struct {
	who  map[*target]bool
	stop context.CancelFunc
}

// want says which namespaces a target waits for from now on.
func (w *namespaceWaits) want(t *target, names map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range names {
		wait := w.names[name]
		if wait == nil {
			ctx, cancel := context.WithCancel(w.background)
			wait = &namespaceWait{who: map[*target]bool{}, stop: cancel}
			w.names[name] = wait
			go w.run(ctx, name)
		}
		wait.who[t] = true
	}
	for name, wait := range w.names {
		if names[name] {
			continue
		}
		if delete(wait.who, t); len(wait.who) == 0 {
			wait.stop()
			delete(w.names, name)
		}
	}
}

// run watches one namespace until ctx ends.
func (w *namespaceWaits) run(ctx context.Context, name string) {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
	var pause backoff
	for ctx.Err() == nil {
		// Without a version the watch begins with what is there.
		events, err := w.client.Resource(namespacesResource).Watch(ctx, options)
		switch {
		case apierrors.IsForbidden(err):
			w.log.Debug("a namespace may not be watched; what waits for it is tried again from time to time", "namespace", name, "error", err)
			return
		case err == nil:
			w.pass(ctx, name, events)
		}
		linger(ctx, nil, pause.next(w.timing.watchFirst, w.timing.watchMax))
	}
}

// pass tells of a namespace that is there, until the watch ends.
func (w *namespaceWaits) pass(ctx context.Context, name string, events watch.Interface) {
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-events.ResultChan():
			if !open {
				return
			}
			object, ok := event.Object.(metav1.Object)
			if ok && (event.Type == watch.Added || event.Type == watch.Modified) && object.GetDeletionTimestamp() == nil {
				w.tell(name)
			}
		}
	}
}

func (w *namespaceWaits) tell(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wait := w.names[name]; wait != nil {
		for t := range wait.who {
			t.leave(func(in *inbox) { in.namespaces = append(in.namespaces, name) })
		}
	}
}
