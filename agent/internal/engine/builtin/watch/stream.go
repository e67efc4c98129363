package watch

import (
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// resumable passes on the events of a watch except the error that the connection broke. It ends like a watch whose time
// is over, so that the next watch continues where this one ended.
type resumable struct {
	watch.Interface
	events chan watch.Event
	stop   func()
	done   chan struct{}
}

// resume starts one. During the initial events (initial) it passes on every event: there is no resourceVersion to
// continue from yet, and the reader would start again in an endless loop.
func resume(from watch.Interface, initial bool) *resumable {
	u := newResumable(from)
	go u.run(initial)
	return u
}

func newResumable(from watch.Interface) *resumable {
	u := &resumable{Interface: from, events: make(chan watch.Event), done: make(chan struct{})}
	u.stop = sync.OnceFunc(func() { close(u.done) })
	return u
}

// ResultChan implements watch.Interface.
func (u *resumable) ResultChan() <-chan watch.Event { return u.events }

// Stop implements watch.Interface.
func (u *resumable) Stop() {
	u.stop()
	u.Interface.Stop()
}

// run ends with the watch or with Stop.
func (u *resumable) run(initial bool) {
	defer close(u.events)
	for event := range u.Interface.ResultChan() {
		if !initial && isBroken(event) {
			continue
		}
		initial = initial && !endsInitial(event)
		select {
		case u.events <- event:
		case <-u.done:
			return
		}
	}
}

// isBroken reports whether an event is the error that the connection broke.
func isBroken(event watch.Event) bool {
	var status apierrors.APIStatus
	if event.Type != watch.Error || !errors.As(apierrors.FromObject(event.Object), &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == "ClientWatchDecoding" {
			return true
		}
	}
	return false
}

// endsInitial reports whether an event ends the initial events.
func endsInitial(event watch.Event) bool {
	if event.Type != watch.Bookmark {
		return false
	}
	object, err := meta.Accessor(event.Object)
	return err == nil && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}
