package gitsource

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// proxy forwards the requests of git to web servers. git sends plain HTTP to it over loopback, and authenticates
// with a secret of its run. The proxy adds the destination, the credential and TLS. It forwards only the two
// kinds of requests of the run's service, only to the run's repository, and follows no redirect.
type proxy struct {
	addr    string
	server  *http.Server
	forward *httputil.ReverseProxy
	policy  *egress.Policy

	mu   sync.Mutex
	runs map[string]*proxiedRun // by secret
}

// proxiedRun is one run of git.
type proxiedRun struct {
	target  *url.URL // with the credential
	service service
	fault   *fault
}

const (
	proxyUser  = "kedge"
	refsSuffix = "/info/refs"
	// maxReplay limits the request bodies that are buffered, to repeat a request when a kept connection turns out
	// to be closed. Requests of git are smaller.
	maxReplay = 1 << 20
	// maxAdvertisement limits the first response, which git keeps in memory: half a million refs.
	maxAdvertisement = 64 << 20
)

var errNoProxyUser = errors.New("unknown secret")

func newProxy(transport http.RoundTripper, policy *egress.Policy) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for git: %w", err)
	}
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // the faults of the run contain the errors
	p := &proxy{addr: listener.Addr().String(), policy: policy, runs: map[string]*proxiedRun{}}
	p.forward = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: quiet,
		Rewrite: rewrite, ModifyResponse: checkResponse, ErrorHandler: handleProxyError,
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet}
	go func() {
		// Close ends it with ErrServerClosed. git sees any other error.
		_ = p.server.Serve(listener)
	}()
	return p, nil
}

func (p *proxy) close() error { return p.server.Close() }

// open returns the connection of one run of git to a service of target.
func (p *proxy) open(target *url.URL, s service) *connection {
	secret := rand.Text()
	proxyURL := url.URL{Scheme: "http", User: url.UserPassword(proxyUser, secret), Host: p.addr}
	out := &connection{
		// git must use plain HTTP, because with TLS the proxy could not see the requests. Host and path are for
		// the process list.
		url:       (&url.URL{Scheme: "http", Host: target.Host, Path: target.Path}).String(),
		transport: "http",
		config:    []setting{{"http.proxy", proxyURL.String()}},
		closers: []func(){func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.runs, secret)
		}},
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs[secret] = &proxiedRun{target: target, service: s, fault: &out.fault}
	return out
}

type runKey struct{}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	run, err := p.run(r)
	if err != nil {
		w.Header().Set("Proxy-Authenticate", "Basic")
		http.Error(w, err.Error(), http.StatusProxyAuthRequired)
		return
	}
	if !run.service.matches(r) {
		run.fault.set("git sent a request that does not belong to "+string(run.service), "", r.Method+" "+r.URL.Path)
		http.Error(w, "only "+string(run.service)+" is allowed", http.StatusForbidden)
		return
	}
	ctx := context.WithValue(r.Context(), runKey{}, run)
	p.forward.ServeHTTP(w, r.WithContext(p.tracePrivate(ctx, run.fault)))
}

// tracePrivate records when a request goes to a private network, over a new or a kept connection.
func (p *proxy) tracePrivate(ctx context.Context, f *fault) context.Context {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if to, err := netip.ParseAddrPort(info.Conn.RemoteAddr().String()); err == nil && p.policy.Hides(to.Addr()) {
			f.inPrivateNetwork()
		}
	}})
	return egress.WithPrivateHook(ctx, f.inPrivateNetwork)
}

func (p *proxy) run(r *http.Request) (*proxiedRun, error) {
	// Only the name of the header differs from the one that net/http parses.
	credential := http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	user, secret, _ := credential.BasicAuth()
	p.mu.Lock()
	defer p.mu.Unlock()
	run := p.runs[secret]
	if run == nil || user != proxyUser {
		return nil, errNoProxyUser
	}
	return run, nil
}

// matches reports whether a request is one of the two of a service.
func (s service) matches(r *http.Request) bool {
	if r.Method == http.MethodGet {
		return strings.HasSuffix(r.URL.Path, refsSuffix) && r.URL.RawQuery == s.query()
	}
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/"+string(s))
}

func (s service) query() string { return "service=" + string(s) }

// rewrite builds the request to the remote. It copies the body and the headers that describe it, but not the
// destination.
func rewrite(r *httputil.ProxyRequest) {
	run := r.In.Context().Value(runKey{}).(*proxiedRun)
	out := r.Out
	out.URL = &url.URL{Scheme: run.target.Scheme, Host: run.target.Host}
	out.Host = run.target.Host
	if out.Method == http.MethodGet {
		out.URL.Path, out.URL.RawQuery = run.target.Path+refsSuffix, run.service.query()
	} else {
		out.URL.Path = run.target.Path + "/" + string(run.service)
	}
	out.Header = http.Header{}
	for _, name := range []string{"Accept", "Accept-Encoding", "Content-Encoding", "Content-Type", "Git-Protocol", "User-Agent"} {
		if values := r.In.Header[name]; len(values) > 0 {
			out.Header[name] = values
		}
	}
	if user := run.target.User; user != nil {
		password, _ := user.Password()
		out.SetBasicAuth(user.Username(), password)
	}
	if out.ContentLength <= 0 || out.ContentLength > maxReplay {
		return
	}
	if body, err := io.ReadAll(out.Body); err == nil { // otherwise the transport gets the same error
		out.Body = io.NopCloser(bytes.NewReader(body))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
}

var errRejectedResponse = errors.New("the response of the remote is not forwarded")

// checkResponse forwards responses of the service and rejects all others.
func checkResponse(r *http.Response) error {
	run := r.Request.Context().Value(runKey{}).(*proxiedRun)
	if r.StatusCode != http.StatusOK {
		run.fault.setRetryAfter(retryAfter(r.Header.Get("Retry-After"), time.Now()))
		run.fault.httpStatus(run.service, r.StatusCode, r.Header.Get("Location"))
		return errRejectedResponse
	}
	body := &limitedBody{ReadCloser: r.Body, fault: run.fault, remaining: math.MaxInt64}
	if r.Request.Method == http.MethodGet {
		if kind := r.Header.Get("Content-Type"); kind != "application/x-"+string(run.service)+"-advertisement" {
			run.fault.setFor(fleet.ReasonNotGit, "the response is not from a Git repository: check the URL", "", "content type "+kind)
			return errRejectedResponse
		}
		body.remaining = maxAdvertisement
	}
	r.Body = body
	return nil
}

// limitedBody records when a response ends early, which git treats as damage, and ends one that is too long.
type limitedBody struct {
	io.ReadCloser
	fault     *fault
	remaining int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.fault.connectionLost(err)
	}
	if b.remaining -= int64(n); b.remaining < 0 {
		b.fault.set("the repository has too many branches and tags", "", "")
		return 0, errOutputTooLarge
	}
	return n, err
}

func handleProxyError(w http.ResponseWriter, r *http.Request, err error) {
	run := r.Context().Value(runKey{}).(*proxiedRun)
	if !errors.Is(err, errRejectedResponse) && r.Context().Err() == nil {
		run.fault.dialError(err)
	}
	w.WriteHeader(http.StatusBadGateway)
}
