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

// watchFor is how long a watch lives before it is made anew.
const watchFor = 30 * time.Minute

// watch sees every change of the Lease until ctx ends. What it misses while it is cut off, the
// timers of Run make good.
func (e *Elector) watch(ctx context.Context) {
	var backoff wait.Backoff
	for ctx.Err() == nil {
		began := time.Now()
		if err := e.watchOnce(ctx); err != nil {
			e.failed(ctx, err)
		}
		if time.Since(began) > watchFor/2 {
			backoff.Reset()
			continue
		}
		wait.For(ctx, backoff.Next(e.timing.retry, 8*e.timing.retry))
	}
}

func (e *Elector) watchOnce(ctx context.Context) error {
	this := "metadata.name=" + e.cfg.Name
	list, err := e.list(ctx, this)
	if err != nil {
		return err
	}
	if len(list.Items) == 0 {
		e.see(nil)
	} else {
		e.see(&list.Items[0])
	}
	seconds := int64(watchFor / time.Second)
	w, err := e.cfg.Leases.Watch(ctx, metav1.ListOptions{FieldSelector: this, ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: &seconds})
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
			return errors.New("watching the Lease: what came is none")
		case event.Type == watch.Deleted:
			e.see(nil)
		case event.Type == watch.Added, event.Type == watch.Modified:
			e.see(object)
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
