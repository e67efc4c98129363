// Package kubeproxy sends the requests of callers of a tunnel to the API server. It impersonates the caller with a
// ServiceAccount that may do nothing else, and checks every request against the policy of the cluster's owner.
package kubeproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
	"github.com/kedge-dev/kedge/internal/kuberequest"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
)

// origin is the origin of the responses of this package.
const origin = "agent"

// Proxy serves the connections of tunnels. Create it with New, and call Run.
type Proxy struct {
	target   *url.URL
	plain    http.RoundTripper // HTTP/2 where the API server has it
	upgrades http.RoundTripper // HTTP/1.1, which connections that change their protocol need
	conns    chan net.Conn
	done     chan struct{}
	log      *slog.Logger

	mu     sync.Mutex
	policy ownerpolicy.Policy
	open   map[*openRequest]struct{}
}

// openRequest is a request that is served now.
type openRequest struct {
	what   kuberequest.Request
	cancel context.CancelFunc
}

// New returns a proxy to the API server of cluster, which authenticates with tokens of account.
func New(cluster *rest.Config, account Account, log *slog.Logger) (*Proxy, error) {
	cfg := rest.AnonymousClientConfig(cluster)
	cfg.QPS, cfg.DisableCompression, cfg.UserAgent = -1, true, ""
	cfg.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedTokenSource(account.source(log))))
	target, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	plain, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing the transport of tunnels: %w", err)
	}
	upgrades, err := http1Transport(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing the transport of tunnels: %w", err)
	}
	return &Proxy{
		target: target, plain: plain, upgrades: upgrades, conns: make(chan net.Conn), done: make(chan struct{}),
		log: log.With(obs.KeyComponent, "kubeproxy"), open: map[*openRequest]struct{}{},
	}, nil
}

// http1Transport returns a transport that uses HTTP/1.1.
func http1Transport(cfg *rest.Config) (http.RoundTripper, error) {
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	if tlsConfig != nil {
		tlsConfig.NextProtos = []string{"http/1.1"}
	}
	dial, proxy := cfg.Dial, cfg.Proxy // with the defaults of client-go
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	return rest.HTTPWrappersForConfig(cfg, &http.Transport{
		TLSClientConfig: tlsConfig, DialContext: dial, Proxy: proxy, TLSHandshakeTimeout: 10 * time.Second, DisableCompression: true,
		IdleConnTimeout: time.Minute,
	})
}

// Run serves until ctx ends.
func (p *Proxy) Run(ctx context.Context) error {
	srv := &http.Server{
		Handler: p, ReadHeaderTimeout: 30 * time.Second, MaxHeaderBytes: 256 << 10, ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if of, ok := c.(*callerConn); ok {
				return context.WithValue(ctx, callerKey{}, of.caller)
			}
			return ctx
		},
	}
	stop := context.AfterFunc(ctx, func() {
		close(p.done)
		_ = srv.Close()
	})
	defer stop()
	if err := srv.Serve((*listener)(p)); !errors.Is(err, http.ErrServerClosed) && ctx.Err() == nil {
		return err
	}
	return nil
}

// Serve serves one connection of a caller until it is closed.
func (p *Proxy) Serve(conn net.Conn, c wire.TunnelCaller) {
	of := &callerConn{Conn: conn, caller: c, closed: make(chan struct{})}
	select {
	case p.conns <- of:
	case <-p.done:
		_ = conn.Close()
		return
	}
	<-of.closed
}

// Restrict sets the policy of the cluster's owner. Open requests that it does not allow end.
func (p *Proxy) Restrict(policy ownerpolicy.Policy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.policy = policy
	for r := range p.open {
		if policy.RefuseRequest(r.what).Reason != "" {
			r.cancel()
		}
	}
}

// begin returns the reason to refuse a request, or counts it as open.
func (p *Proxy) begin(what kuberequest.Request, cancel context.CancelFunc) (end func(), refusal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cause := p.policy.RefuseRequest(what); cause.Reason != "" {
		return nil, cause.Message
	}
	r := &openRequest{what: what, cancel: cancel}
	p.open[r] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, r)
	}, ""
}

type callerKey struct{}

// ServeHTTP sends a request to the API server. The server has checked it; the agent does not rely on that.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	caller, ok := r.Context().Value(callerKey{}).(wire.TunnelCaller)
	what, err := kuberequest.Of(r.Method, r.URL)
	upgrade := kuberequest.Upgrade(r.Header)
	switch {
	case !ok || caller.User == "":
		kuberequest.WriteStatus(w, r.URL, origin, http.StatusForbidden, "the request has no caller", 0)
		return
	case err != nil:
		kuberequest.WriteStatus(w, r.URL, origin, http.StatusBadRequest, err.Error(), 0)
		return
	case kuberequest.Impersonates(r.Header) || !what.AllowsUpgrade(upgrade):
		kuberequest.WriteStatus(w, r.URL, origin, http.StatusForbidden, "the request is not allowed through a tunnel", 0)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	end, refusal := p.begin(what, cancel)
	if refusal != "" {
		kuberequest.WriteStatus(w, r.URL, origin, http.StatusForbidden, refusal, 0)
		return
	}
	defer end()
	_ = http.NewResponseController(w).EnableFullDuplex()
	proxy := &httputil.ReverseProxy{
		Transport: p.plain, FlushInterval: -1, ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		Rewrite: func(pr *httputil.ProxyRequest) { p.rewrite(pr, caller, upgrade != "") },
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode == http.StatusUnauthorized {
				// The caller is authenticated: the API server refused the account, and the client must not drop its credential.
				return &accountError{errors.New("the API server refused the token of the ServiceAccount that impersonates you: try again")}
			}
			kuberequest.KeepResponseHeaders(resp.Header, resp.StatusCode == http.StatusSwitchingProtocols)
			resp.Header.Set(kuberequest.OriginHeader, "cluster")
			return nil
		},
		ErrorHandler: p.fail,
	}
	if upgrade != "" {
		proxy.Transport = p.upgrades
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// rewrite prepares a request for the API server: the same path and query to the byte, and the identity of the caller.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest, c wire.TunnelCaller, upgrade bool) {
	out := pr.Out
	out.URL.Scheme, out.URL.Host, out.Host = p.target.Scheme, p.target.Host, ""
	prefix := strings.TrimSuffix(p.target.Path, "/")
	out.URL.Path, out.URL.RawPath, out.URL.RawQuery = prefix+pr.In.URL.Path, prefix+pr.In.URL.EscapedPath(), pr.In.URL.RawQuery
	kuberequest.KeepRequestHeaders(out.Header, upgrade)
	out.Header.Set(transport.ImpersonateUserHeader, c.User)
	for _, group := range c.Groups {
		out.Header.Add(transport.ImpersonateGroupHeader, group)
	}
	for key, values := range c.Extra {
		for _, value := range values {
			out.Header.Add(transport.ImpersonateUserExtraHeaderPrefix+escapeHeaderKey(key), value)
		}
	}
}

// fail responds to a request that the API server did not respond to.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	var account *accountError
	switch {
	case errors.As(err, &account):
		kuberequest.WriteStatus(w, r.URL, origin, http.StatusBadGateway, account.Error(), 0)
	case r.Context().Err() != nil:
		kuberequest.WriteStatus(w, r.URL, origin, http.StatusForbidden, "the owner of this cluster does not allow the request any more", 0)
	default:
		p.log.Info("the API server did not respond", obs.Err(err))
		kuberequest.WriteStatus(w, r.URL, origin, http.StatusBadGateway, "the API server did not respond: "+err.Error(), 0)
	}
}

// escapeHeaderKey escapes the key of an extra field for a header, as client-go does.
func escapeHeaderKey(key string) string {
	var out strings.Builder
	for i := range len(key) {
		if c := key[i]; c == '%' || c == '/' || c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),:;<=>?@[\\]{}", c) >= 0 {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// callerConn is a connection of a caller. closed is closed with it.
type callerConn struct {
	net.Conn
	caller wire.TunnelCaller
	once   sync.Once
	closed chan struct{}
}

// Close implements net.Conn.
func (c *callerConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.closed) })
	return err
}

// CloseWrite ends the direction to the server.
func (c *callerConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}

// listener accepts the connections of Serve.
type listener Proxy

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error { return nil }

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "tunnel", Net: "tunnel"} }
