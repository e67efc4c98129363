package kubeapi

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A namespace with thousands of changed resources does not delay those of another namespace. Specs come before statuses.
func TestNamespacesTakeTurns(t *testing.T) {
	t.Parallel()
	turns := newTurns()
	queue := priorityqueue.New[reconcile.Request]("test")
	t.Cleanup(queue.ShutDown)
	name := func(ns string, i int) types.NamespacedName {
		return types.NamespacedName{Namespace: ns, Name: fmt.Sprint(i)}
	}
	for i := range 1000 {
		turns.enqueue(queue, name("large", i), priorityStatus)
	}
	for i := range 1000 {
		turns.enqueue(queue, name("large", i), prioritySpec)
		turns.enqueue(queue, name("large", i), prioritySpec) // counts once
	}
	for i := range 3 {
		turns.enqueue(queue, name("small", i), prioritySpec)
	}
	turns.enqueue(queue, name("other", 0), priorityStatus)
	var order []string
	at := map[string]int{}
	for range 1004 {
		item, _, _ := queue.GetWithPriority()
		turns.start(item.NamespacedName)
		queue.Done(item)
		order = append(order, item.Namespace)
		at[item.String()] = len(order)
	}
	for i := range 3 {
		if got := at[name("small", i).String()]; got == 0 || got > 4 {
			t.Errorf("resource %d of the small namespace was number %d of the queue: %v", i, got, order[:10])
		}
	}
	if got := at[name("other", 0).String()]; got != 1004 {
		t.Errorf("the status was number %d of the queue", got)
	}
	if len(turns.waiting) != 0 {
		t.Errorf("%v are still counted", turns.waiting)
	}
}
