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

// late is a transport that is held up, until the fence does not hold any more, after a request has passed it.
type late struct {
	fence *Fence
	next  http.RoundTripper
}

func (l late) RoundTrip(r *http.Request) (*http.Response, error) {
	l.fence.extend(time.Now(), -time.Second) // nobody has noticed yet: a process that was stopped has just woken up
	return l.next.RoundTrip(r)
}

// covers: D6
func TestFenceIsAskedAgainWhenTheContentLeaves(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			var whole atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if _, err := io.ReadAll(r.Body); err == nil && r.Proto == protocol {
					whole.Add(1)
				}
			}))
			server.EnableHTTP2 = protocol == "HTTP/2.0"
			server.StartTLS()
			defer server.Close()
			var f Fence
			patch := func(next http.RoundTripper) error {
				f.extend(time.Now(), time.Minute)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, server.URL, strings.NewReader("{}"))
				if err != nil {
					return err
				}
				resp, err := f.Wrap(next).RoundTrip(r)
				if err == nil {
					err = resp.Body.Close()
				}
				return err
			}
			if err := patch(server.Client().Transport); err != nil || whole.Load() != 1 {
				t.Fatalf("a leader's request: %v, %d arrived", err, whole.Load())
			}
			if err := patch(late{&f, server.Client().Transport}); !errors.Is(err, ErrNotLeading) {
				t.Errorf("a request that was held up ends with %v", err)
			}
			server.Close() // waits for what has arrived
			if n := whole.Load(); n != 1 {
				t.Errorf("%d requests arrived whole, want the first alone", n)
			}
		})
	}
}
