package kubeapi

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Priorities in a queue. Specs come first: several changes of the state are one write of the status then.
const (
	prioritySpec   = 0
	priorityStatus = -1_000_000
	maxTurn        = 100_000
)

// turns lets the namespaces take turns in a queue: the priority of a resource falls with the number of resources of its
// namespace that wait already. A tenant that creates thousands of resources at once does not delay those of others. It is
// safe for concurrent use.
type turns struct {
	mu      sync.Mutex
	waiting map[string]map[string]struct{} // names, by namespace
}

func newTurns() *turns { return &turns{waiting: map[string]map[string]struct{}{}} }

// enqueue adds a resource to a queue.
func (t *turns) enqueue(q workqueue.TypedRateLimitingInterface[reconcile.Request], name types.NamespacedName, priority int) {
	request := reconcile.Request{NamespacedName: name}
	queue, ok := q.(priorityqueue.PriorityQueue[reconcile.Request])
	if !ok {
		q.Add(request)
		return
	}
	queue.AddWithOpts(priorityqueue.AddOpts{Priority: new(priority - t.wait(name))}, request)
}

// wait returns how many resources of the namespace wait, with this one.
func (t *turns) wait(name types.NamespacedName) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	add(t.waiting, name.Namespace, name.Name)
	return min(len(t.waiting[name.Namespace]), maxTurn)
}

// start records that a resource does not wait any more.
func (t *turns) start(name types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	drop(t.waiting, name.Namespace, name.Name)
}

// handler enqueues the resources that a watch reports.
func (t *turns) handler() handler.TypedEventHandler[client.Object, reconcile.Request] {
	enqueue := func(q workqueue.TypedRateLimitingInterface[reconcile.Request], o client.Object) {
		t.enqueue(q, client.ObjectKeyFromObject(o), prioritySpec)
	}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.TypedFuncs[client.Object, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[client.Object], q queue) { enqueue(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[client.Object], q queue) { enqueue(q, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], q queue) { enqueue(q, e.Object) },
	}
}
