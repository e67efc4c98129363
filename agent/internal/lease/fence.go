package lease

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// ErrNotLeading says that a request was not sent because this replica does not lead any more.
var ErrNotLeading = errors.New("this replica does not lead any more")

// Fence knows until when this replica may change anything. The zero value never lets anything pass.
type Fence struct {
	mu      sync.Mutex
	until   time.Time
	passing map[*passage]bool // requests that change something and are under way
}

// passage is a request on its way. Its answer may be read until the fence is shut.
type passage struct {
	io.ReadCloser
	fence  *Fence
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (p *passage) Close() error {
	err := p.ReadCloser.Close()
	p.fence.passed(p)
	return err
}

// extend lets requests pass for a while after since.
func (f *Fence) extend(since time.Time, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = since.Add(d)
}

// shut lets nothing pass any more, and breaks off what is under way: on a connection that hangs it might
// arrive when somebody else leads.
func (f *Fence) shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = time.Time{}
	for p := range f.passing {
		p.cancel()
	}
}

// enter takes note of a request that is about to leave, or returns nil when it must not.
func (f *Fence) enter(cancel context.CancelFunc) *passage {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.holdsLocked() {
		return nil
	}
	p := &passage{fence: f, cancel: cancel}
	if f.passing == nil {
		f.passing = map[*passage]bool{}
	}
	f.passing[p] = true
	return p
}

func (f *Fence) passed(p *passage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.passing, p)
	p.cancel()
}

// holds reports whether the deadline is ahead, by the clock that stands still while a machine is
// suspended and by the one that does not: a jump of the latter costs a change of leaders, no more.
func (f *Fence) holds() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holdsLocked()
}

func (f *Fence) holdsLocked() bool {
	now := time.Now()
	return now.Before(f.until) && now.Round(0).Before(f.until.Round(0))
}

// Wrap makes a transport that refuses to send what may change something when this replica does not
// lead. It is asked before a request leaves, and again when its content does.
func (f *Fence) Wrap(next http.RoundTripper) http.RoundTripper { return fenced{f, next} }

type fenced struct {
	fence *Fence
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return t.next.RoundTrip(r)
	}
	ctx, cancel := context.WithCancel(r.Context())
	passage := t.fence.enter(cancel)
	if passage == nil {
		cancel()
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, ErrNotLeading
	}
	resp, err := t.next.RoundTrip(t.guard(r.WithContext(ctx)))
	if err != nil {
		t.fence.passed(passage)
		return nil, err
	}
	passage.ReadCloser = resp.Body
	resp.Body = passage
	return resp, nil
}

// guard has the fence asked while the content of r, which is a copy, is written.
func (t fenced) guard(r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	r.Body = content{r.Body, t.fence}
	if again := r.GetBody; again != nil {
		r.GetBody = func() (io.ReadCloser, error) {
			body, err := again()
			if err != nil {
				return nil, err
			}
			return content{body, t.fence}, nil
		}
	}
	return r
}

// content is what a request carries. Between its passing the fence and its leaving there is whatever the transport
// waits for, and a process may be stopped there for as long as it takes that another one leads. A request that
// breaks off before the end of its content is not carried out.
type content struct {
	io.ReadCloser
	fence *Fence
}

// Read implements io.Reader.
func (c content) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if !c.fence.holds() {
		return 0, ErrNotLeading
	}
	return n, err
}
