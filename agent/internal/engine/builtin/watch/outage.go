package watch

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

	"github.com/kedge-dev/kedge/internal/wait"
)

// When the API server is unavailable for a while, a watch continues where it ended, however long that takes. Only a watch
// whose resourceVersion expired starts with a list. A reflector by itself lists everything again after most network
// failures. An API server whose database was restored accepts a watch from a version that it has not reached yet, so its
// version is checked first.

// open opens a watch. It retries while the API server cannot be reached.
func (w *Watches) open(ctx context.Context, client dynamic.ResourceInterface, options metav1.ListOptions, failing func(error), working func()) (watch.Interface, error) {
	var pause wait.Backoff
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents
	patient := time.Now().Add(w.timing.StaleAfter)
	for failed := false; ; failed = true {
		again := w.retrySignal()
		var err error
		if failed && !initial {
			err = w.checkRestored(ctx, client, options.ResourceVersion)
		}
		if err == nil {
			var events watch.Interface
			if events, err = client.Watch(ctx, options); err == nil {
				working()
				return resume(events, initial), nil
			}
		}
		if ctx.Err() != nil {
			return nil, err
		}
		failing(err)
		if !isTransient(err, patient) {
			return nil, err
		}
		wait.ForOr(ctx, again, pause.NextJittered(w.timing.First, w.timing.Max))
	}
}

// checkRestored returns a ResourceExpired error if the API server has not reached a version yet: its database was restored.
// A watch from that version would be accepted and would report nothing until the server reaches it again.
func (w *Watches) checkRestored(ctx context.Context, client dynamic.ResourceInterface, version string) error {
	from, err := strconv.ParseUint(version, 10, 64)
	if err != nil || from == 0 {
		return nil // it starts at any version
	}
	ctx, cancel := context.WithTimeout(ctx, w.timing.Request)
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

// isTransient reports whether a failure comes from the network or from an API server that is unavailable. Internal errors
// count until patient. Every other error is an answer to the request.
func isTransient(err error, patient time.Time) bool {
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

// retrySignal returns a channel that is closed by Retry.
func (w *Watches) retrySignal() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.again
}

// Retry opens every stream that waits for its next attempt at once.
func (w *Watches) Retry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.again)
	w.again = make(chan struct{})
}
