package restapi

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// HeldLimit limits the requests that are open at the same time. Each of them holds a connection, a goroutine,
// and its buffers for as long as its caller wants.
type HeldLimit struct {
	PerToken, PerTenant, Total int
}

// Defaults of Config. One tenant cannot use up the total. A browser has one stream per tab and a program one
// per process; an agent holds one poll, and two while its pod is replaced.
var (
	defaultStreams   = HeldLimit{PerToken: 64, PerTenant: 512, Total: 4096}
	defaultLongPolls = HeldLimit{PerToken: 8, PerTenant: 8192, Total: 32768}
)

// heldRetryAfter is the retry interval for a refused caller: the end of an open request cannot be predicted.
const heldRetryAfter = 5 * time.Second

// heldRequests counts the open requests of one kind. It is safe for concurrent use.
type heldRequests struct {
	kind   string // for metrics
	noun   string // for messages
	limit  HeldLimit
	refuse func(kind string)

	mu      sync.Mutex
	total   int
	tokens  map[string]int // by the hash of the token
	tenants map[string]int
}

func newHeldRequests(kind, noun string, limit HeldLimit, refuse func(kind string)) *heldRequests {
	return &heldRequests{kind: kind, noun: noun, limit: limit, refuse: refuse, tokens: map[string]int{}, tenants: map[string]int{}}
}

// take counts one more request. Call release, once, when the request ends. It fails with *throttledError if
// there are too many.
func (h *heldRequests) take(token, tenant string) (release func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.tokens[token] >= h.limit.PerToken:
		err = h.tooManyLocked("this token has %d %s open, which is the limit: close one, or share one between your programs", h.limit.PerToken)
	case h.tenants[tenant] >= h.limit.PerTenant:
		err = h.tooManyLocked("this tenant has %d %s open, which is the limit: close some that are not needed", h.limit.PerTenant)
	case h.total >= h.limit.Total:
		err = h.tooManyLocked("the server has %d %s open, which is the limit: try again later", h.limit.Total)
	}
	if err != nil {
		return nil, err
	}
	h.total++
	h.tokens[token]++
	h.tenants[tenant]++
	return func() { h.release(token, tenant) }, nil
}

func (h *heldRequests) tooManyLocked(format string, limit int) error {
	h.refuse(h.kind)
	return &throttledError{detail: fmt.Sprintf(format, limit, h.noun), wait: heldRetryAfter}
}

func (h *heldRequests) release(token, tenant string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total--
	decrement(h.tokens, token)
	decrement(h.tenants, tenant)
}

func decrement(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// throttledError asks the caller to retry later.
type throttledError struct {
	detail string
	wait   time.Duration
}

func (e *throttledError) Error() string { return e.detail }

// headers returns the response headers of a throttled request.
func (e *throttledError) headers() http.Header {
	return http.Header{"Retry-After": {retryAfter(e.wait)}}
}

// withHeaders adds the headers of an error to its problem document.
func withHeaders(p *problemDocument, throttled *throttledError) error {
	return huma.ErrorWithHeaders(p, throttled.headers())
}
