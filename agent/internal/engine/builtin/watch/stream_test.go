package watch

import (
	"errors"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func TestStreamEndsWhenNobodyReadsIt(t *testing.T) {
	t.Parallel()
	from := watch.NewFakeWithChanSize(1, false)
	from.Add(&metav1.PartialObjectMetadata{})
	u := newResumable(from)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		u.run(false)
	}()
	u.Stop()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it waits for a reader that is gone")
	}
}

func TestStreamHidesThatItBrokeOffWhenThereIsAPlaceToGoOnFrom(t *testing.T) {
	t.Parallel()
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, "GET", "ClientWatchDecoding")
	broken := watch.Event{Type: watch.Error, Object: reporter.AsObject(errors.New("connection lost"))}
	expired := apierrors.NewResourceExpired("too old").Status()
	end := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	added := watch.Event{Type: watch.Added, Object: &metav1.PartialObjectMetadata{}}
	cases := []struct {
		reason  string
		initial bool
		events  []watch.Event
		want    int
	}{
		{"it goes on where it was", false, []watch.Event{added, broken}, 1},
		{"what the API server says is passed on", false, []watch.Event{added, {Type: watch.Error, Object: &expired}}, 2},
		{"what is there at first was not sent whole", true, []watch.Event{added, broken}, 2},
		{"what is there at first was sent", true, []watch.Event{added, {Type: watch.Bookmark, Object: end}, broken}, 2},
		{"another bookmark is not the end of that", true, []watch.Event{{Type: watch.Bookmark, Object: &metav1.PartialObjectMetadata{}}, broken}, 2},
	}
	for _, tt := range cases {
		from := watch.NewFakeWithChanSize(len(tt.events), false)
		for _, event := range tt.events {
			from.Action(event.Type, event.Object)
		}
		from.Stop()
		got := 0
		for range resume(from, tt.initial).ResultChan() {
			got++
		}
		if got != tt.want {
			t.Errorf("%s: %d events are passed on, want %d", tt.reason, got, tt.want)
		}
	}
}
