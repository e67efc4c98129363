package relay

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A handler that returns while its request is ended must wait: the response of HTTP/2 does not exist any more afterwards.
func TestTheEndOfARequestDoesNotOutliveItsHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := false
		stop := onEnd(ctx, func() {
			<-time.After(time.Second)
			ended = true
		})
		cancel()
		synctest.Wait()
		stop()
		if !ended {
			t.Error("the handler has returned before")
		}
		onEnd(t.Context(), func() { t.Error("the request has not ended") })()
	})
}
