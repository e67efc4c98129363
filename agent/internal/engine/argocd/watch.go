package argocd

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/internal/wait"
)

// follow runs listAndWatch again when it ends, after a delay, until ctx ends. ended gets its result.
func (e *Engine) follow(ctx context.Context, listAndWatch func(context.Context) error, ended func(error)) {
	var delay wait.Backoff
	for ctx.Err() == nil {
		begun := time.Now()
		err := listAndWatch(ctx)
		if ctx.Err() != nil {
			return
		}
		ended(err)
		if time.Since(begun) > time.Minute {
			delay.Reset()
		}
		wait.For(ctx, delay.NextJittered(e.timing.retryFirst, e.timing.retryMax))
	}
}

// watchFrom calls changed for each event of a watch. It returns nil when the watch ends in order.
func watchFrom(ctx context.Context, client dynamic.ResourceInterface, options metav1.ListOptions, changed func(obj *unstructured.Unstructured, deleted bool)) error {
	options.Limit, options.Continue, options.AllowWatchBookmarks = 0, "", true
	w, err := client.Watch(ctx, options)
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		switch event.Type {
		case watch.Error:
			return apierrors.FromObject(event.Object)
		case watch.Added, watch.Modified, watch.Deleted:
			if obj, ok := event.Object.(*unstructured.Unstructured); ok {
				changed(obj, event.Type == watch.Deleted)
			}
		}
	}
	return nil
}
