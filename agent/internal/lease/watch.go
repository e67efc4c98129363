package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kedge-dev/kedge/internal/wait"
)

// watchTimeout is the duration of one watch request.
const watchTimeout = 30 * time.Minute

// watch observes every change of the Lease until ctx ends. The timers of Run make up for events that it misses.
func (e *Elector) watch(ctx context.Context) {
	var backoff wait.Backoff
	for ctx.Err() == nil {
		started := time.Now()
		if err := e.watchOnce(ctx); err != nil {
			e.recordProblem(ctx, err)
		}
		if time.Since(started) > watchTimeout/2 {
			backoff.Reset()
			continue
		}
		wait.For(ctx, backoff.Next(e.timing.retry, maxRetryFactor*e.timing.retry))
	}
}

func (e *Elector) watchOnce(ctx context.Context) error {
	selector := "metadata.name=" + e.cfg.Name
	list, err := e.list(ctx, selector)
	if err != nil {
		return err
	}
	if len(list.Items) == 0 {
		e.observe(nil)
	} else {
		e.observe(&list.Items[0])
	}
	seconds := int64(watchTimeout / time.Second)
	w, err := e.cfg.Leases.Watch(ctx, metav1.ListOptions{FieldSelector: selector, ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: &seconds})
	if err != nil {
		return fmt.Errorf("watching Lease %s: %w", e.cfg.Name, err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		switch {
		case event.Type == watch.Error:
			return fmt.Errorf("watching Lease %s: %w", e.cfg.Name, apierrors.FromObject(event.Object))
		case !ok:
			return errors.New("watching the Lease: the event has no object")
		case event.Type == watch.Deleted:
			e.observe(nil)
		case event.Type == watch.Added, event.Type == watch.Modified:
			e.observe(object)
		}
	}
	return nil
}

func (e *Elector) list(ctx context.Context, selector string) (*unstructured.UnstructuredList, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timing.request)
	defer cancel()
	list, err := e.cfg.Leases.List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("reading Lease %s: %w", e.cfg.Name, err)
	}
	return list, nil
}
