package lease

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// ErrNotLeading means that a request was not sent because this replica does not lead.
var ErrNotLeading = errors.New("this replica does not lead")

// Fence rejects requests that may change the cluster while this replica does not lead. The zero value is closed. A Fence is
// safe for concurrent use.
type Fence struct {
	mu       sync.Mutex
	deadline time.Time
	inFlight map[*fencedRequest]bool
}

// fencedRequest is a request in flight that may change the cluster. It ends when the caller closes the body of the
// response, or when the fence closes.
type fencedRequest struct {
	io.ReadCloser
	fence  *Fence
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (r *fencedRequest) Close() error {
	err := r.ReadCloser.Close()
	r.fence.finish(r)
	return err
}

// extend opens the fence until d after sent.
func (f *Fence) extend(sent time.Time, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deadline = sent.Add(d)
}

// close closes the fence and cancels the requests in flight: on a connection that hangs they could arrive when another
// replica leads.
func (f *Fence) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deadline = time.Time{}
	for r := range f.inFlight {
		r.cancel()
	}
}

// start records a request that is about to be sent. It returns nil when the fence is closed.
func (f *Fence) start(cancel context.CancelFunc) *fencedRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.isOpenLocked() {
		return nil
	}
	r := &fencedRequest{fence: f, cancel: cancel}
	if f.inFlight == nil {
		f.inFlight = map[*fencedRequest]bool{}
	}
	f.inFlight[r] = true
	return r
}

func (f *Fence) finish(r *fencedRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.inFlight, r)
	r.cancel()
}

// isOpen reports whether the deadline is in the future.
func (f *Fence) isOpen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.isOpenLocked()
}

// isOpenLocked compares both the monotonic clock, which stops while a machine is suspended, and the wall clock, which does
// not. A wall clock that jumps costs a change of the leader, no more.
func (f *Fence) isOpenLocked() bool {
	now := time.Now()
	return now.Before(f.deadline) && now.Round(0).Before(f.deadline.Round(0))
}

// Wrap returns a transport that fails with ErrNotLeading for requests that may change the cluster while this replica does
// not lead. It checks when a request starts and again while its body is sent.
func (f *Fence) Wrap(next http.RoundTripper) http.RoundTripper { return fencedTransport{f, next} }

type fencedTransport struct {
	fence *Fence
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t fencedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return t.next.RoundTrip(r)
	}
	ctx, cancel := context.WithCancel(r.Context())
	request := t.fence.start(cancel)
	if request == nil {
		cancel()
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, ErrNotLeading
	}
	resp, err := t.next.RoundTrip(t.withFencedBody(r.WithContext(ctx)))
	if err != nil {
		t.fence.finish(request)
		return nil, err
	}
	request.ReadCloser = resp.Body
	resp.Body = request
	return resp, nil
}

// withFencedBody replaces the body of r, which the caller has copied, by one that checks the fence.
func (t fencedTransport) withFencedBody(r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	r.Body = fencedBody{r.Body, t.fence}
	if getBody := r.GetBody; getBody != nil {
		r.GetBody = func() (io.ReadCloser, error) {
			body, err := getBody()
			if err != nil {
				return nil, err
			}
			return fencedBody{body, t.fence}, nil
		}
	}
	return r
}

// fencedBody is the body of a request. A process may be suspended after a request has passed the fence and before the
// transport sends it, for so long that another replica leads by then. The API server does not process a request whose
// body is incomplete.
type fencedBody struct {
	io.ReadCloser
	fence *Fence
}

// Read implements io.Reader.
func (b fencedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.fence.isOpen() {
		return 0, ErrNotLeading
	}
	return n, err
}
