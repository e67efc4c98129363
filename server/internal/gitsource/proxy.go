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

	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// proxy carries the requests of git to web servers. git speaks plain HTTP to it on loopback and is
// known by a secret that is made for each run; where the requests go, the credential and TLS are
// the proxy's own. It forwards the two requests that the service of that run is made of and no other,
// to its repository and nowhere else, and follows nothing that the remote says about other
// places.
type proxy struct {
	addr    string
	server  *http.Server
	forward *httputil.ReverseProxy
	policy  *egress.Policy

	mu   sync.Mutex
	runs map[string]*proxied // by secret
}

// proxied is one run of git.
type proxied struct {
	target  *url.URL // with the credential
	service service
	fault   *fault
}

const (
	proxyUser  = "kedge"
	refsSuffix = "/info/refs"
	// maxReplay is how much of a request is kept, to send it again when a connection that was kept
	// open turns out to be closed. git asks with less.
	maxReplay = 1 << 20
	// maxAdvertisement bounds the first answer, which git keeps in memory: half a million refs.
	maxAdvertisement = 64 << 20
)

var errNoProxyUser = errors.New("no run of git is known by this secret")

func newProxy(transport http.RoundTripper, policy *egress.Policy) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for git: %w", err)
	}
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // faults are told to the run
	p := &proxy{addr: listener.Addr().String(), policy: policy, runs: map[string]*proxied{}}
	p.forward = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: quiet,
		Rewrite: rewrite, ModifyResponse: checkResponse, ErrorHandler: noResponse,
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet}
	go func() {
		// It ends with ErrServerClosed when the manager is closed; git sees anything else.
		_ = p.server.Serve(listener)
	}()
	return p, nil
}

func (p *proxy) close() error { return p.server.Close() }

// open makes the way for one run of git to a service of target.
func (p *proxy) open(target *url.URL, s service) *passage {
	secret := rand.Text()
	through := url.URL{Scheme: "http", User: url.UserPassword(proxyUser, secret), Host: p.addr}
	out := &passage{
		// git must not ask for TLS, which would keep the proxy out. The rest is for those who look
		// at the list of processes.
		url:       (&url.URL{Scheme: "http", Host: target.Host, Path: target.Path}).String(),
		transport: "http",
		config:    []setting{{"http.proxy", through.String()}},
		closers: []func(){func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.runs, secret)
		}},
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs[secret] = &proxied{target: target, service: s, fault: &out.fault}
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
	if !run.service.has(r) {
		run.fault.set("git asked for something else than "+string(run.service), "", r.Method+" "+r.URL.Path)
		http.Error(w, "only "+string(run.service)+" is possible", http.StatusForbidden)
		return
	}
	ctx := context.WithValue(r.Context(), runKey{}, run)
	p.forward.ServeHTTP(w, r.WithContext(p.watchPrivate(ctx, run.fault)))
}

// watchPrivate notes when a request goes to a private network, by a connection that is made for it or one that was kept.
func (p *proxy) watchPrivate(ctx context.Context, f *fault) context.Context {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if to, err := netip.ParseAddrPort(info.Conn.RemoteAddr().String()); err == nil && p.policy.Hides(to.Addr()) {
			f.inPrivateNetwork()
		}
	}})
	return egress.OnPrivate(ctx, f.inPrivateNetwork)
}

func (p *proxy) run(r *http.Request) (*proxied, error) {
	// Only the name of the header differs from what net/http reads.
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

// has reports whether a request is one of the two that a service is made of.
func (s service) has(r *http.Request) bool {
	if r.Method == http.MethodGet {
		return strings.HasSuffix(r.URL.Path, refsSuffix) && r.URL.RawQuery == s.query()
	}
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/"+string(s))
}

func (s service) query() string { return "service=" + string(s) }

// rewrite makes the request to the remote. Of what git says it takes the body and what describes
// it, not where it goes.
func rewrite(r *httputil.ProxyRequest) {
	run := r.In.Context().Value(runKey{}).(*proxied)
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
	if body, err := io.ReadAll(out.Body); err == nil { // else the transport meets the same error
		out.Body = io.NopCloser(bytes.NewReader(body))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
}

var errAnswer = errors.New("the remote's answer is not passed on")

// checkResponse passes on what is part of the service, and nothing else that a server may say.
func checkResponse(r *http.Response) error {
	run := r.Request.Context().Value(runKey{}).(*proxied)
	if r.StatusCode != http.StatusOK {
		run.fault.later(retryAfter(r.Header.Get("Retry-After"), time.Now()))
		run.fault.status(run.service, r.StatusCode, r.Header.Get("Location"))
		return errAnswer
	}
	body := &watchedBody{ReadCloser: r.Body, fault: run.fault, left: math.MaxInt64}
	if r.Request.Method == http.MethodGet {
		if kind := r.Header.Get("Content-Type"); kind != "application/x-"+string(run.service)+"-advertisement" {
			run.fault.setFor(ReasonNotGit, "the server's answer is not that of a Git repository: is the URL right?", "", "content type "+kind)
			return errAnswer
		}
		body.left = maxAdvertisement
	}
	r.Body = body
	return nil
}

// watchedBody notes when an answer ends before its time, which git takes for damage, and ends one
// that is too long.
type watchedBody struct {
	io.ReadCloser
	fault *fault
	left  int64
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.fault.broken(err)
	}
	if b.left -= int64(n); b.left < 0 {
		b.fault.set("the repository has too many branches and tags", "", "")
		return 0, errTooMuch
	}
	return n, err
}

func noResponse(w http.ResponseWriter, r *http.Request, err error) {
	run := r.Context().Value(runKey{}).(*proxied)
	if !errors.Is(err, errAnswer) && r.Context().Err() == nil {
		run.fault.connection(err)
	}
	w.WriteHeader(http.StatusBadGateway)
}
