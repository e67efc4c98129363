package lease

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

// ErrNotLeading says that a request was not sent because this replica does not lead any more.
var ErrNotLeading = errors.New("this replica does not lead any more")

// Fence knows until when this replica may change anything. The zero value never lets anything pass.
type Fence struct {
	mu    sync.Mutex
	until time.Time
}

// extend lets requests pass for a while after since.
func (f *Fence) extend(since time.Time, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = since.Add(d)
}

func (f *Fence) shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = time.Time{}
}

// holds reports whether the deadline is ahead, by the clock that stands still while a machine is
// suspended and by the one that does not: a jump of the latter costs a change of leaders, no more.
func (f *Fence) holds() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	return now.Before(f.until) && now.Round(0).Before(f.until.Round(0))
}

// Wrap makes a transport that refuses to send what may change something when this replica does not
// lead. It is asked at the last moment before a request leaves.
func (f *Fence) Wrap(next http.RoundTripper) http.RoundTripper { return fenced{f, next} }

type fenced struct {
	fence *Fence
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead && !t.fence.holds() {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, ErrNotLeading
	}
	return t.next.RoundTrip(r)
}
