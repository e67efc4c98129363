package lease

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// delayedTransport sends a request only when the fence has closed after the request passed it.
type delayedTransport struct {
	fence  *Fence
	expect http.RoundTripper
}

func (l delayedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	l.fence.extend(time.Now(), -time.Second) // as when the process was suspended here
	return l.expect.RoundTrip(r)
}

// covers: D6
func TestFenceIsCheckedWhileTheBodyIsSent(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			var complete atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if _, err := io.ReadAll(r.Body); err == nil && r.Proto == protocol {
					complete.Add(1)
				}
			}))
			server.EnableHTTP2 = protocol == "HTTP/2.0"
			server.StartTLS()
			defer server.Close()
			var f Fence
			patch := func(expect http.RoundTripper) error {
				f.extend(time.Now(), time.Minute)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, server.URL, strings.NewReader("{}"))
				if err != nil {
					return err
				}
				resp, err := f.Wrap(expect).RoundTrip(r)
				if err == nil {
					err = resp.Body.Close()
				}
				return err
			}
			if err := patch(server.Client().Transport); err != nil || complete.Load() != 1 {
				t.Fatalf("request of a leader: %v, %d received", err, complete.Load())
			}
			if err := patch(delayedTransport{&f, server.Client().Transport}); !errors.Is(err, ErrNotLeading) {
				t.Errorf("a delayed request ends with %v", err)
			}
			server.Close() // waits for requests in progress
			if n := complete.Load(); n != 1 {
				t.Errorf("%d complete requests received, want only the first", n)
			}
		})
	}
}
