package agent

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
)

// apiSources are the objects that determine which APIs an API server serves.
var apiSources = []schema.GroupVersionResource{
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
}

const (
	// refreshAfter is the delay between an event and the read of the capabilities. The API server needs time to serve a
	// new kind, and several definitions are often installed together.
	refreshAfter = 500 * time.Millisecond
	// minInterval is the smallest interval between two reads. It doubles with each change, up to maxInterval, because each
	// change may make the server render every chart.
	minInterval = 2 * time.Second
	maxInterval = time.Minute
	// confirmAfter is the delay of a second read, for an API server that is slow to serve a new kind. It is also how long
	// an API version has to be missing until it counts as removed.
	confirmAfter = 10 * time.Second
	// forbiddenRetry is the delay after which a watch that is forbidden, or whose kind does not exist, is tried again.
	forbiddenRetry = 10 * time.Minute
)

// run calls changed after each change of the capabilities, until ctx ends. It sends no requests while nothing changes,
// except for the watches.
func (i *clusterInfo) run(ctx context.Context, changed func()) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	for _, source := range apiSources {
		watches.Go(func() { i.watch(ctx, source) })
	}
	due := time.NewTimer(minInterval)
	due.Stop()
	defer due.Stop()
	var readAt time.Time
	var pending, confirm bool
	interval := minInterval
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-i.events:
			if confirm = !readAt.IsZero(); !pending { // objects that exist at the start are served already
				pending = true
				due.Reset(max(refreshAfter, time.Until(readAt.Add(interval))))
			}
			continue
		case <-due.C:
		}
		pending, readAt = false, time.Now()
		isNew, retry := i.refresh(ctx)
		if isNew {
			interval = min(maxInterval, 2*interval)
			changed()
		} else {
			interval = minInterval
		}
		switch {
		case retry > 0:
			due.Reset(retry)
		case confirm:
			due.Reset(confirmAfter)
			confirm = false
		}
	}
}

// watch signals every change of the objects of one kind, if the agent may watch them. It stores no objects. After a lost
// connection it continues at the last resource version, without a list.
func (i *clusterInfo) watch(ctx context.Context, source schema.GroupVersionResource) {
	client, err := metadata.NewForConfig(i.cluster)
	if err != nil {
		i.cfg.Log.Warn("preparing to watch the capabilities of the cluster", obs.Err(err))
		return
	}
	resourceVersion := "" // last seen
	logged := false
	var backoff wait.Backoff
	for ctx.Err() == nil {
		started := time.Now()
		err := i.watchOnce(ctx, client.Resource(source), &resourceVersion)
		delay := backoff.Next(time.Second, time.Minute)
		switch {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			delay = forbiddenRetry
			if !logged {
				i.cfg.Log.Info("this agent cannot watch the capabilities of its cluster: it sends changes when it connects", "resource", source.Resource, obs.Err(err))
			}
			logged = true
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			resourceVersion = ""
		case err != nil && ctx.Err() == nil:
			i.events.Set() // the API server was unavailable, perhaps for an upgrade
		}
		if time.Since(started) > time.Minute {
			backoff.Reset()
		}
		wait.For(ctx, delay)
	}
}

// watchTimeout is the duration of one watch request.
const watchTimeout = 30 * time.Minute

// watchOnce watches from a resource version, or from now if it is "", and updates it.
func (i *clusterInfo) watchOnce(ctx context.Context, client metadata.ResourceInterface, resourceVersion *string) error {
	if *resourceVersion == "" {
		list, err := client.List(ctx, metav1.ListOptions{Limit: 1}) // for its resource version
		if err != nil {
			return err
		}
		*resourceVersion = list.GetResourceVersion()
		i.events.Set() // for changes before the watch
	}
	seconds := int64(watchTimeout / time.Second)
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: *resourceVersion, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		object, ok := event.Object.(metav1.Object)
		if event.Type == watch.Error || !ok {
			return apierrors.FromObject(event.Object)
		}
		*resourceVersion = object.GetResourceVersion()
		if event.Type != watch.Bookmark {
			i.events.Set()
		}
	}
	return nil
}
