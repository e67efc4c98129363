package link_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http/httpproxy"

	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// forwardProxy is an HTTP/1.1 proxy. Only it can resolve kedge.test.
type forwardProxy struct {
	*httptest.Server
	target   string // host:port of kedge.test
	refuse   bool
	tunnels  atomic.Int32
	requests atomic.Int32
	auth     atomic.Value
}

func newForwardProxy(t *testing.T, target string) *forwardProxy {
	t.Helper()
	p := &forwardProxy{target: target}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *forwardProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.auth.Store(r.Header.Get("Proxy-Authorization"))
	switch {
	case p.refuse:
		http.Error(w, "not for you", http.StatusForbidden)
	case r.Method == http.MethodConnect:
		p.tunnels.Add(1)
		p.tunnel(w, r)
	default:
		p.requests.Add(1)
		proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", p.target
		}, Transport: http1()}
		proxy.ServeHTTP(w, r)
	}
}

func (p *forwardProxy) tunnel(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.Host, "kedge.test:") {
		http.Error(w, "unknown host "+r.Host, http.StatusBadGateway)
		return
	}
	out, err := net.Dial("tcp", p.target)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	in, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = out.Close()
		return
	}
	_, _ = io.WriteString(in, "HTTP/1.1 200 Connection established\r\nX-Proxy: yes\r\n\r\n")
	go pipe(in, out)
	pipe(out, in)
}

func http1() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{Protocols: protocols, DisableKeepAlives: true}
}

// covers: C2
func TestProxyFromTheEnvironmentIsHonoured(t *testing.T) {
	tests := []struct {
		scheme, variable, reason string
		tls                      bool
	}{
		{"grpcs", "HTTPS_PROXY", "gRPC with TLS goes through CONNECT", true},
		{"wss", "HTTPS_PROXY", "so does a WebSocket with TLS", true},
		{"ws", "HTTP_PROXY", "a plain WebSocket is forwarded as an HTTP/1.1 upgrade", false},
		{"grpc", "HTTP_PROXY", "plain gRPC needs a tunnel: the proxy knows no HTTP/2", false},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			m := gatewaytest.NewMemory()
			agent, token := m.Enroll("edge-1")
			target := m.Deploy(agent, "shop", configMaps(t, 1, 50_000)) // large: fetched beside the stream
			var o gatewaytest.Options
			if tt.tls {
				o.DataDir = t.TempDir()
			}
			srv := serve(t, m, o)
			proxy := newForwardProxy(t, srv.Addr())
			t.Setenv("HTTPS_PROXY", "")
			t.Setenv("HTTP_PROXY", "")
			t.Setenv("NO_PROXY", "")
			t.Setenv(tt.variable, strings.Replace(proxy.URL, "http://", "http://me:secret@", 1))
			choose := httpproxy.FromEnvironment().ProxyFunc()
			_, port, _ := net.SplitHostPort(srv.Addr())
			r := start(t, tt.scheme+"://kedge.test:"+port, token, func(c *link.Config) {
				c.Proxy = func(r *http.Request) (*url.URL, error) { return choose(r.URL) }
				if tt.tls {
					c.CAFile = write(t, "ca.pem", string(srv.CAPEM()))
				}
			})
			if err := m.AwaitObserved(testContext(t), target.ID, fleet.SyncSynced); err != nil {
				t.Fatalf("no status through the proxy: %v; the client reports: %v", err, r.Ready(t.Context()))
			}
			if proxy.tunnels.Load()+proxy.requests.Load() != 1 {
				t.Errorf("the proxy saw %d tunnels and %d requests, want one connection in all", proxy.tunnels.Load(), proxy.requests.Load())
			}
			if got := proxy.auth.Load(); got != "Basic bWU6c2VjcmV0" {
				t.Errorf("the proxy received %q, want the credentials of the variable", got)
			}
			r.stop()
			<-r.done
		})
	}
}

// covers: C2
func TestReverseProxyThatSpeaksOnlyHTTP1(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	target := m.Deploy(agent, "shop", configMaps(t, 1, 1))
	srv := serve(t, m, gatewaytest.Options{})
	ingress := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", srv.Addr() },
		Transport: http1(),
	})
	t.Cleanup(ingress.Close)
	r := start(t, "ws://"+ingress.Listener.Addr().String(), token, nil)
	if err := m.AwaitObserved(testContext(t), target.ID, fleet.SyncSynced); err != nil {
		t.Fatal(err)
	}
	r.stop()
	<-r.done
}

// covers: C11
func TestProxyThatRefusesIsNamed(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"grpcs", "grpc"} {
		proxy := newForwardProxy(t, "127.0.0.1:1")
		proxy.refuse = true
		problems := newProblemLog()
		u, err := url.Parse(strings.Replace(proxy.URL, "http://", "http://me:secret@", 1))
		if err != nil {
			t.Fatal(err)
		}
		r := start(t, scheme+"://kedge.test", "kedge-agent-x", func(c *link.Config) {
			c.Proxy = http.ProxyURL(u)
			c.Log = slogTo(problems)
		})
		problems.await(t, testContext(t))
		assertProblem(t, r, link.KindProxy, "403", "HTTPS_PROXY")
		if strings.Contains(r.Ready(t.Context()).Error(), "secret") {
			t.Error("the message contains the proxy's password")
		}
	}
}
