package e2e_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// forwardProxy is a typical office proxy: the only route to the outside, with HTTP/1.1 only. It inspects
// tunnels and closes those that start with HTTP/2, unless configured otherwise.
type forwardProxy struct {
	*httptest.Server
	upstream string // host:port that every name leads to
	allowH2  bool

	tunnels, upgrades, refused atomic.Int64
}

func newForwardProxy(tb testing.TB, upstream string) *forwardProxy {
	tb.Helper()
	p := &forwardProxy{upstream: upstream}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	tb.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

func (p *forwardProxy) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.ProtoMajor != 1:
		http.Error(w, "HTTP/1.1 only", http.StatusHTTPVersionNotSupported)
	case r.Method == http.MethodConnect:
		p.tunnel(w)
	case r.URL.IsAbs():
		if r.Header.Get("Upgrade") != "" {
			p.upgrades.Add(1)
		}
		target := &url.URL{Scheme: "http", Host: p.upstream}
		(&httputil.ReverseProxy{Rewrite: func(pr *httputil.ProxyRequest) { pr.SetURL(target) }}).ServeHTTP(w, r)
	default:
		http.Error(w, "this is a proxy", http.StatusBadRequest)
	}
}

// tunnel forwards bytes after it has seen their start.
func (p *forwardProxy) tunnel(w http.ResponseWriter) {
	p.tunnels.Add(1)
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	begin, h2 := beginning(client, buffered.Reader)
	if h2 && !p.allowH2 {
		p.refused.Add(1)
		return
	}
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	if _, err := server.Write(begin); err == nil {
		_, _ = io.Copy(server, buffered)
	}
}

var errSeen = errors.New("seen enough")

// beginning reads the first bytes of a client and reports whether it requests HTTP/2.
func beginning(conn net.Conn, from *bufio.Reader) (read []byte, h2 bool) {
	if first, err := from.Peek(3); err != nil || string(first) == "PRI" {
		return nil, err == nil
	}
	var taken bytes.Buffer
	hello := &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		h2 = slices.Contains(info.SupportedProtos, "h2")
		return nil, errSeen
	}}
	_ = tls.Server(listener{Conn: conn, from: io.TeeReader(from, &taken)}, hello).Handshake() // ends with errSeen
	return taken.Bytes(), h2
}

// listener reads a connection without responding.
type listener struct {
	net.Conn
	from io.Reader
}

func (l listener) Read(b []byte) (int, error)  { return l.from.Read(b) }
func (l listener) Write(b []byte) (int, error) { return len(b), nil }

func hostPort(rawURL string) string {
	_, rest, _ := strings.Cut(rawURL, "://")
	return rest
}
