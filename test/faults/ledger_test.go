package faults_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// object is a ConfigMap that deployments create.
type object struct{ namespace, name string }

// span is a time in which every spec wants an object, in resource versions: an API server has one order for everything. to
// is zero while it lasts.
type span struct{ from, to uint64 }

// ledger knows which objects were wanted when, and which ones were deleted.
type ledger struct {
	mu      sync.Mutex
	wanted  map[object][]span
	alive   map[object]uint64 // resource versions of their creation
	deleted []deletion
}

type deletion struct {
	object
	created, deleted uint64
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func newLedger() *ledger { return &ledger{wanted: map[object][]span{}, alive: map[object]uint64{}} }

// want records what the spec of a resource wants since a resource version, instead of what it wanted before.
func (l *ledger) want(before, after map[object]string, at uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o := range before {
		if _, still := after[o]; still {
			continue
		}
		if spans := l.wanted[o]; len(spans) > 0 && spans[len(spans)-1].to == 0 {
			spans[len(spans)-1].to = at
		}
	}
	for o := range after {
		if _, already := before[o]; !already {
			l.wanted[o] = append(l.wanted[o], span{from: at})
		}
	}
}

// watch records objects until the end of the test.
func (l *ledger) watch(tb testing.TB, client dynamic.Interface) {
	tb.Helper()
	maps := client.Resource(configMaps)
	list, err := maps.List(tb.Context(), metav1.ListOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	w, err := watchtools.NewRetryWatcherWithContext(tb.Context(), list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) { return maps.Watch(ctx, o) },
	})
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			l.record(e)
		}
	}()
	tb.Cleanup(func() {
		w.Stop()
		<-done
	})
}

func (l *ledger) record(e apiwatch.Event) {
	u, ok := e.Object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	o := object{u.GetNamespace(), u.GetName()}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Type {
	case apiwatch.Added:
		l.alive[o] = versionOf(u.GetResourceVersion())
	case apiwatch.Deleted:
		l.deleted = append(l.deleted, deletion{o, l.alive[o], versionOf(u.GetResourceVersion())})
		delete(l.alive, o)
	}
}

// wrong returns the deletions of objects that every spec since their creation wanted.
func (l *ledger) wrong() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, d := range l.deleted {
		for _, s := range l.wanted[d.object] {
			if s.from < d.created && (s.to == 0 || d.deleted < s.to) {
				out = append(out, fmt.Sprintf("%s/%s was created at %d and deleted at %d, and is wanted from %d to %d", d.namespace, d.name, d.created, d.deleted, s.from, s.to))
			}
		}
	}
	return out
}

// deletions returns the number of deletions.
func (l *ledger) deletions() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.deleted)
}

// versionOf parses a resource version of etcd.
func versionOf(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}
