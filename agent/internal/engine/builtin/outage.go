package builtin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// An API server that is away for a while costs nothing but that time: a watch goes on where it ended,
// however long that takes, and only one that the API server calls expired begins with a list. Left to
// itself, a reflector lists everything again after most failures of the network. An API server that has gone
// back in time, since its database was restored, does not say so to a watch: it is asked.

// open opens a watch, and tries again for as long as it only cannot be reached.
func (w *watches) open(ctx context.Context, client dynamic.ResourceInterface, options metav1.ListOptions, failing func(error), working func()) (watch.Interface, error) {
	var pause backoff
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents
	patient := time.Now().Add(w.timing.blindAfter)
	for failed := false; ; failed = true {
		again := w.word()
		var err error
		if failed && !initial {
			err = w.setBack(ctx, client, options.ResourceVersion)
		}
		if err == nil {
			var events watch.Interface
			if events, err = client.Watch(ctx, options); err == nil {
				working()
				return passOn(events, initial), nil
			}
		}
		if ctx.Err() != nil {
			return nil, err
		}
		failing(err)
		if !passes(err, patient) {
			return nil, err
		}
		linger(ctx, again, pause.next(w.timing.watchFirst, w.timing.watchMax))
	}
}

// setBack returns an error that calls a version expired if the API server has not come to it: its database
// was restored while it was away. A watch from there would be accepted, and say nothing until that many
// changes have been made again.
func (w *watches) setBack(ctx context.Context, client dynamic.ResourceInterface, version string) error {
	from, err := strconv.ParseUint(version, 10, 64)
	if err != nil || from == 0 {
		return nil // it begins anywhere
	}
	ctx, cancel := context.WithTimeout(ctx, w.timing.requests.Request)
	defer cancel()
	list, err := client.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	if now, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64); err == nil && now < from {
		return apierrors.NewResourceExpired(fmt.Sprintf("the API server is at version %d and was at %d before it was away", now, from))
	}
	return nil
}

// passes reports whether a failure is of the network or of an API server that is away, however long that
// takes, or, for a while, of one that has trouble. Everything else is its word on the request.
func passes(err error, patient time.Time) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	switch code := int(status.Status().Code); {
	case apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return false
	case code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout, code == http.StatusTooManyRequests:
		return true
	default:
		return code >= http.StatusInternalServerError && time.Now().Before(patient)
	}
}

// word is closed when whoever waits is to try at once.
func (w *watches) word() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.again
}

func linger(ctx context.Context, again <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-again:
	case <-timer.C:
	}
}

// retry has every stream that waits be opened at once.
func (w *watches) retry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.again)
	w.again = make(chan struct{})
}
