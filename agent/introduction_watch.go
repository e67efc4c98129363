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

// apiSources are the objects whose changes may change what an API server serves.
var apiSources = []schema.GroupVersionResource{
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
}

const (
	// lookAfter lets a definition be served, and those that are installed with it come, before the cluster is
	// looked at. While they keep coming looks are lookApart from each other, which doubles up to longestApart: each
	// may have every chart rendered anew.
	lookAfter    = 500 * time.Millisecond
	lookApart    = 2 * time.Second
	longestApart = time.Minute
	// lookOnceMore is a backstop, for an API server that is slow to serve what it has told of, and how long something
	// has to be missing before that is believed.
	lookOnceMore = 10 * time.Second
	// forbiddenFor is when what may not be watched, or is not there, is tried again: it may be allowed by then.
	forbiddenFor = 10 * time.Minute
)

// run has changed called after each change of what the cluster offers, until ctx ends. While there is none it
// asks the cluster for nothing: it watches.
func (i *introduction) run(ctx context.Context, changed func()) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	for _, source := range apiSources {
		watches.Go(func() { i.watch(ctx, source) })
	}
	due := time.NewTimer(lookApart)
	due.Stop()
	defer due.Stop()
	var looked time.Time
	var pending, confirm bool
	apart := lookApart
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-i.events:
			if confirm = !looked.IsZero(); !pending { // what there is at the start is served
				pending = true
				due.Reset(max(lookAfter, time.Until(looked.Add(apart))))
			}
			continue
		case <-due.C:
		}
		pending, looked = false, time.Now()
		news, again := i.look(ctx)
		if news {
			apart = min(longestApart, 2*apart)
			changed()
		} else {
			apart = lookApart
		}
		switch {
		case again > 0:
			due.Reset(again)
		case confirm:
			due.Reset(lookOnceMore)
			confirm = false
		}
	}
}

// watch tells run of every change of the objects of one kind, as far as the agent may watch them. It keeps nothing of
// them, and after a lost connection goes on where it was: a list of them all would be of no use.
func (i *introduction) watch(ctx context.Context, source schema.GroupVersionResource) {
	all, err := metadata.NewForConfig(i.cluster)
	if err != nil {
		i.cfg.Log.Warn("preparing to watch what the cluster offers", obs.Err(err))
		return
	}
	version := "" // that was seen last
	said := false
	var backoff wait.Backoff
	for ctx.Err() == nil {
		began := time.Now()
		err := i.watchOnce(ctx, all.Resource(source), &version)
		pause := backoff.Next(time.Second, time.Minute)
		switch {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			pause = forbiddenFor
			if !said {
				i.cfg.Log.Info("this agent cannot watch what its cluster offers: the server is told of changes when the agent connects", "resource", source.Resource, obs.Err(err))
			}
			said = true
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			version = ""
		case err != nil && ctx.Err() == nil:
			wait.Signal(i.events) // the API server was away: it may come back as another version
		}
		if time.Since(began) > time.Minute {
			backoff.Reset()
		}
		wait.For(ctx, pause)
	}
}

// watchFor is how long a watch lives before it is made anew.
const watchFor = 30 * time.Minute

// watchOnce watches from version on, or from now on if that is "", and keeps it up to date.
func (i *introduction) watchOnce(ctx context.Context, client metadata.ResourceInterface, version *string) error {
	if *version == "" {
		list, err := client.List(ctx, metav1.ListOptions{Limit: 1}) // which says what the newest version is
		if err != nil {
			return err
		}
		*version = list.GetResourceVersion()
		wait.Signal(i.events) // for what has happened before
	}
	seconds := int64(watchFor / time.Second)
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: *version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		object, ok := event.Object.(metav1.Object)
		if event.Type == watch.Error || !ok {
			return apierrors.FromObject(event.Object)
		}
		*version = object.GetResourceVersion()
		if event.Type != watch.Bookmark {
			wait.Signal(i.events)
		}
	}
	return nil
}
