package builtin

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
)

// kindWaiter waits for kinds that the cluster does not know yet.
type kindWaiter interface {
	// kindsChanged says that the kinds of a group may have changed; "" is any group. It must not block.
	kindsChanged(group string)
}

// definitions watches CustomResourceDefinitions, by their metadata and only while somebody waits
// for a kind. Safe for concurrent use.
type definitions struct {
	client     metadata.Interface
	mapper     *kube.Mapper
	log        *slog.Logger
	timing     timing
	background context.Context // ends with the engine

	mu      sync.Mutex
	waiting map[kindWaiter]bool
	stop    context.CancelFunc
}

// want starts or ends the wait of who.
func (d *definitions) want(who kindWaiter, wait bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting[who] == wait {
		return
	}
	if wait {
		d.waiting[who] = true
	} else {
		delete(d.waiting, who)
	}
	switch {
	case len(d.waiting) > 0 && d.stop == nil:
		ctx, cancel := context.WithCancel(d.background)
		d.stop = cancel
		go d.run(ctx)
	case len(d.waiting) == 0 && d.stop != nil:
		d.stop()
		d.stop = nil
	}
}

func (d *definitions) run(ctx context.Context) {
	client := d.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, options)
		},
	}
	reflector := cache.NewReflectorWithOptions(source, &metav1.PartialObjectMetadata{}, definitionSink{d},
		cache.ReflectorOptions{Name: "kedge", TypeDescription: "customresourcedefinitions"})
	var pause backoff
	for ctx.Err() == nil {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
			d.log.Debug("watching custom resource definitions failed; unknown kinds are asked for from time to time", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause.next(d.timing.watchFirst, d.timing.watchMax)):
		}
	}
}

func (d *definitions) changed(group string) {
	if group != "" {
		d.mapper.Forget(group)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for who := range d.waiting {
		who.kindsChanged(group)
	}
}

// definitionSink turns every event into "the kinds of this group may have changed".
type definitionSink struct{ d *definitions }

func (s definitionSink) Add(obj any) error    { return s.pass(obj) }
func (s definitionSink) Update(obj any) error { return s.pass(obj) }
func (s definitionSink) Delete(obj any) error { return s.pass(obj) }
func (s definitionSink) Resync() error        { return nil }

func (s definitionSink) pass(obj any) error {
	if definition, ok := obj.(metav1.Object); ok {
		// A definition is always named <plural>.<group>.
		_, group, _ := strings.Cut(definition.GetName(), ".")
		s.d.changed(group)
	}
	return nil
}

// Replace may hide what happened between asking for a kind and watching: everybody asks once more.
func (s definitionSink) Replace([]any, string) error {
	s.d.changed("")
	return nil
}
