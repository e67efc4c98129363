package watch

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

	"github.com/kedge-dev/kedge/internal/wait"
)

// NamespacesResource is the resource of Namespaces.
var NamespacesResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// NamespaceWaiter waits for namespaces that do not exist yet.
type NamespaceWaiter interface {
	// NamespaceExists is called when a namespace exists. It must not block.
	NamespaceExists(name string)
}

// NewNamespaces makes Namespaces that run until background ends.
func NewNamespaces(background context.Context, client metadata.Interface, log *slog.Logger, timing Timing) *Namespaces {
	return &Namespaces{client: client, log: log, timing: timing, background: background, names: map[string]*namespaceWait{}}
}

// Waiting returns how many namespaces are watched.
func (w *Namespaces) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.names)
}

// Namespaces watches the metadata of single namespaces while a target waits for them to exist. Where the agent may not
// watch a namespace, the target retries by its backoff alone. Safe for concurrent use.
type Namespaces struct {
	client     metadata.Interface // with the rights of the agent itself
	log        *slog.Logger
	timing     Timing
	background context.Context // ends with the engine

	mu    sync.Mutex
	names map[string]*namespaceWait
}

type namespaceWait struct {
	who  map[NamespaceWaiter]bool
	stop context.CancelFunc
}

// Want replaces the namespaces that a waiter waits for.
func (w *Namespaces) Want(t NamespaceWaiter, names map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range names {
		wait := w.names[name]
		if wait == nil {
			ctx, cancel := context.WithCancel(w.background)
			wait = &namespaceWait{who: map[NamespaceWaiter]bool{}, stop: cancel}
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
func (w *Namespaces) run(ctx context.Context, name string) {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
	var pause wait.Backoff
	for ctx.Err() == nil {
		// Without a version the watch starts with the current state.
		events, err := w.client.Resource(NamespacesResource).Watch(ctx, options)
		switch {
		case apierrors.IsForbidden(err):
			w.log.Debug("a namespace may not be watched; what waits for it is tried again from time to time", "namespace", name, "error", err)
			return
		case err == nil:
			w.pass(ctx, name, events)
		}
		wait.For(ctx, pause.NextJittered(w.timing.First, w.timing.Max))
	}
}

// pass tells the waiters that a namespace exists, until the watch ends.
func (w *Namespaces) pass(ctx context.Context, name string, events watch.Interface) {
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

func (w *Namespaces) tell(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wait := w.names[name]; wait != nil {
		for t := range wait.who {
			t.NamespaceExists(name)
		}
	}
}
