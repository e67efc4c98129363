package builtin

import (
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// unbroken passes the events of a watch on, but for the word that it has broken off. It ends all the same,
// in the way of one whose time was over: then the next one begins where it was.
type unbroken struct {
	watch.Interface
	events chan watch.Event
	stop   func()
	done   chan struct{}
}

// passOn begins to. While what is there at first is still being sent (initial) nothing is held back: there
// is no place yet to go on from, and whoever reads would begin again at once, for ever.
func passOn(from watch.Interface, initial bool) *unbroken {
	u := newUnbroken(from)
	go u.run(initial)
	return u
}

func newUnbroken(from watch.Interface) *unbroken {
	u := &unbroken{Interface: from, events: make(chan watch.Event), done: make(chan struct{})}
	u.stop = sync.OnceFunc(func() { close(u.done) })
	return u
}

// ResultChan implements watch.Interface.
func (u *unbroken) ResultChan() <-chan watch.Event { return u.events }

// Stop implements watch.Interface.
func (u *unbroken) Stop() {
	u.stop()
	u.Interface.Stop()
}

// run ends with the watch, or when nobody reads any more.
func (u *unbroken) run(initial bool) {
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

// isBroken reports whether an event says that the stream could not be read on.
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

// endsInitial reports whether an event says that all that was there at first has been sent.
func endsInitial(event watch.Event) bool {
	if event.Type != watch.Bookmark {
		return false
	}
	object, err := meta.Accessor(event.Object)
	return err == nil && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}
