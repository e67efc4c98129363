// Package apiproxy is a proxy between a client and a real API server that injects faults: errors, delays,
// truncated responses, responses that are lost after the request was executed, and watches that expire. It is
// for tests.
package apiproxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Fault is the fault of one request. The zero value has no effect.
type Fault struct {
	// Status is returned with Body, without a request to the API server.
	Status int
	Body   string
	Header map[string]string
	// Delay is the time before anything else.
	Delay time.Duration
	// Hold blocks the request until it is closed. If the client cancels first, the API server gets no request.
	Hold <-chan struct{}
	// HoldAnswer executes the request and holds back the response until it is closed, or until the client
	// cancels.
	HoldAnswer <-chan struct{}
	// Cut closes the connection after this number of bytes of the response body; 0 means never.
	Cut int64
	// Lose executes the request and then closes the connection without a response.
	Lose bool
	// Refuse closes the connection immediately.
	Refuse bool
}

// Proxy forwards requests with the identity of its configuration.
type Proxy struct {
	url string

	mu     sync.Mutex
	choose func(*http.Request) *Fault
	seen   int // number of injected faults
	live   map[context.Context]context.CancelFunc
}

// New starts a proxy in front of the API server of cfg. It ends with the test.
func New(tb testing.TB, cfg *rest.Config) *Proxy {
	tb.Helper()
	target, err := url.Parse(cfg.Host)
	if err != nil {
		tb.Fatal(err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{live: map[context.Context]context.CancelFunc{}}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // forward events of a watch immediately
		ModifyResponse: func(r *http.Response) error {
			switch f := faultOf(r.Request.Context()); {
			case f.HoldAnswer != nil:
				select {
				case <-r.Request.Context().Done():
				case <-f.HoldAnswer:
				}
			case f.Lose:
				_ = r.Body.Close()
				return fmt.Errorf("the answer is lost")
			case f.Cut > 0:
				r.Body = &cut{ReadCloser: r.Body, left: f.Cut}
			}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(p.handler(forward))
	server.Config.ErrorLog = nil
	server.Start()
	p.url = server.URL
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return p
}

// Config returns the client configuration for the proxy.
func (p *Proxy) Config() *rest.Config { return &rest.Config{Host: p.url} }

// Do sets the function that chooses the fault of each request; a nil function, or a nil fault, means no fault.
// It must not block.
func (p *Proxy) Do(choose func(*http.Request) *Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.choose, p.seen = choose, 0
}

// Done returns the number of faults since the last Do.
func (p *Proxy) Done() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// Sever closes all connections, including watches.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.live {
		cancel()
	}
}

type faultKey struct{}

func faultOf(ctx context.Context) Fault {
	f, _ := ctx.Value(faultKey{}).(Fault)
	return f
}

func (p *Proxy) handler(forward http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		f := p.begin(ctx, cancel, r)
		defer p.end(ctx, cancel)
		if f.Delay > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(f.Delay):
			}
		}
		if f.Hold != nil && !hold(ctx, r, f.Hold) {
			panic(http.ErrAbortHandler)
		}
		switch {
		case f.Refuse:
			panic(http.ErrAbortHandler)
		case f.Status != 0:
			answer(w, f)
			return
		}
		forward.ServeHTTP(w, r.WithContext(context.WithValue(ctx, faultKey{}, f)))
	}
}

// hold waits until a request may continue; false if its client cancels first.
func hold(ctx context.Context, r *http.Request, until <-chan struct{}) bool {
	body, err := io.ReadAll(r.Body) // a server notices the end of a client only after it has read everything
	if err != nil {
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	select {
	case <-ctx.Done():
		return false
	case <-until:
		return ctx.Err() == nil
	}
}

func (p *Proxy) begin(ctx context.Context, cancel context.CancelFunc, r *http.Request) (f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live[ctx] = cancel
	if p.choose == nil {
		return Fault{}
	}
	if chosen := p.choose(r); chosen != nil {
		p.seen++
		return *chosen
	}
	return Fault{}
}

func (p *Proxy) end(ctx context.Context, cancel context.CancelFunc) {
	cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, ctx)
}

func answer(w http.ResponseWriter, f Fault) {
	w.Header().Set("Content-Type", "application/json")
	for name, value := range f.Header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(f.Status)
	_, _ = io.WriteString(w, f.Body)
}

// cut is a truncated body.
type cut struct {
	io.ReadCloser
	left int64
}

func (c *cut) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, net.ErrClosed
	}
	n, err := c.ReadCloser.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	return n, err
}

// Status returns the body of an error, as an API server writes it.
func Status(code int, reason, message string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)
}
