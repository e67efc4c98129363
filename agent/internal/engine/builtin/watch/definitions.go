package watch

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
	"github.com/kedge-dev/kedge/internal/wait"
)

// KindWaiter waits for kinds that the cluster does not serve yet.
type KindWaiter interface {
	// KindsChanged is called when the kinds of a group may have changed; "" is any group. It must not block.
	KindsChanged(group string)
}

// Definitions watches the metadata of CustomResourceDefinitions while somebody waits for a kind. Safe for concurrent use.
type Definitions struct {
	client     metadata.Interface
	mapper     *kube.Mapper
	log        *slog.Logger
	timing     Timing
	background context.Context // ends with the engine

	mu      sync.Mutex
	waiting map[KindWaiter]bool
	stop    context.CancelFunc
}

// NewDefinitions makes Definitions that run until background ends.
func NewDefinitions(background context.Context, client metadata.Interface, mapper *kube.Mapper, log *slog.Logger, timing Timing) *Definitions {
	return &Definitions{client: client, mapper: mapper, log: log, timing: timing, background: background, waiting: map[KindWaiter]bool{}}
}

// Waiters returns how many waiters there are.
func (d *Definitions) Waiters() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting)
}

// Want starts or ends the wait of a waiter.
func (d *Definitions) Want(who KindWaiter, wait bool) {
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

func (d *Definitions) run(ctx context.Context) {
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
	var pause wait.Backoff
	for ctx.Err() == nil {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
			d.log.Debug("watching custom resource definitions failed; unknown kinds are asked for from time to time", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause.NextJittered(d.timing.First, d.timing.Max)):
		}
	}
}

func (d *Definitions) changed(group string) {
	if group != "" {
		d.mapper.Forget(group)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for who := range d.waiting {
		who.KindsChanged(group)
	}
}

// definitionSink is the store of a reflector. It reports the group of every definition that changes.
type definitionSink struct{ d *Definitions }

func (s definitionSink) Add(obj any) error    { return s.pass(obj) }
func (s definitionSink) Update(obj any) error { return s.pass(obj) }
func (s definitionSink) Delete(obj any) error { return s.pass(obj) }
func (s definitionSink) Resync() error        { return nil }

func (s definitionSink) pass(obj any) error {
	if definition, ok := obj.(metav1.Object); ok {
		// The name of a definition is always <plural>.<group>.
		_, group, _ := strings.Cut(definition.GetName(), ".")
		s.d.changed(group)
	}
	return nil
}

// Replace handles a full list. Definitions may have changed before the watch started, so every waiter asks again.
func (s definitionSink) Replace([]any, string) error {
	s.d.changed("")
	return nil
}
