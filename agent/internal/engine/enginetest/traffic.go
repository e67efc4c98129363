package enginetest

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// request is one request of an engine, without those that watch.
type request struct {
	method, path string
	dryRun       bool
}

// write reports whether the request was meant to change something.
func (r request) write() bool { return r.method != http.MethodGet && !r.dryRun }

func (r request) String() string { return r.method + " " + r.path }

// traffic sees every request of an engine and can interfere with it.
type traffic struct {
	mu       sync.Mutex
	requests []request
	// before is asked before each request is sent; an error fails the request.
	before func(number int, r *http.Request) error
	// after is told when the answer is in.
	after func(number int, r *http.Request)
}

var errInterfered = errors.New("the test let this request fail")

func (tr *traffic) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Has("watch") {
			return next.RoundTrip(r)
		}
		tr.mu.Lock()
		tr.requests = append(tr.requests, request{r.Method, r.URL.Path, r.URL.Query().Get("dryRun") == "All"})
		number, before, after := len(tr.requests), tr.before, tr.after
		tr.mu.Unlock()
		if before != nil {
			if err := before(number, r); err != nil {
				return nil, err
			}
		}
		response, err := next.RoundTrip(r)
		if after != nil {
			after(number, r)
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// interfere sets what is done before and after each request.
func (tr *traffic) interfere(before func(int, *http.Request) error, after func(int, *http.Request)) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.before, tr.after = before, after
}

// mark returns where the traffic is now.
func (tr *traffic) mark() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.requests)
}

// since splits the requests after mark into those for the inventory and all others.
func (tr *traffic) since(mark int, agentNamespace string) (inventory, others []request) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, r := range slices.Clone(tr.requests[mark:]) {
		if strings.HasPrefix(r.path, "/api/v1/namespaces/"+agentNamespace+"/configmaps") {
			inventory = append(inventory, r)
		} else {
			others = append(others, r)
		}
	}
	return inventory, others
}
