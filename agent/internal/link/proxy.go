package link

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// proxyError says that a proxy stands in the way, not the server.
type proxyError struct {
	proxy string // without credentials
	err   error
}

func (e *proxyError) Error() string { return fmt.Sprintf("through proxy %s: %v", e.proxy, e.err) }
func (e *proxyError) Unwrap() error { return e.err }

func (d *dialer) proxy() (*url.URL, error) {
	if d.cfg.Proxy == nil {
		return nil, nil
	}
	u, err := d.cfg.Proxy(&http.Request{URL: d.addr.url(), Header: http.Header{}})
	if err != nil {
		return nil, &proxyError{proxy: "from the environment", err: err}
	}
	return u, nil
}

// dialThrough asks an HTTP proxy for a tunnel to target.
func dialThrough(ctx context.Context, proxy *url.URL, target string) (net.Conn, error) {
	conn, err := dialProxy(ctx, proxy)
	if err != nil {
		return nil, &proxyError{proxy: proxy.Redacted(), err: err}
	}
	tunnel, err := askForTunnel(ctx, conn, proxy, target)
	if err != nil {
		_ = conn.Close()
		return nil, &proxyError{proxy: proxy.Redacted(), err: err}
	}
	return tunnel, nil
}

func dialProxy(ctx context.Context, proxy *url.URL) (net.Conn, error) {
	port := proxy.Port()
	switch proxy.Scheme {
	case "http":
		if port == "" {
			port = "80"
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(proxy.Hostname(), port))
	case "https":
		if port == "" {
			port = "443"
		}
		return (&tls.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(proxy.Hostname(), port))
	default:
		return nil, fmt.Errorf("proxies of scheme %q are not supported, only http and https", proxy.Scheme)
	}
}

func askForTunnel(ctx context.Context, conn net.Conn, proxy *url.URL, target string) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target, Header: http.Header{"User-Agent": {"kedge-agent"}}}
	if proxy.User != nil {
		password, _ := proxy.User.Password()
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(proxy.User.Username()+":"+password)))
	}
	if err := req.Write(conn); err != nil {
		return nil, fmt.Errorf("asking for a tunnel to %s: %w", target, err)
	}
	// A proxy's answer is headers only; one that goes on and on is none.
	resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(byteReader{conn}, 64<<10)), req) //nolint:bodyclose // its body is the tunnel
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it refused a tunnel to %s: %s", target, resp.Status)
	}
	return conn, conn.SetDeadline(time.Time{})
}

// byteReader hands out one byte at a time, so that nothing behind the headers is swallowed: what
// follows belongs to the tunnel.
type byteReader struct{ r io.Reader }

func (b byteReader) Read(p []byte) (int, error) { return b.r.Read(p[:min(1, len(p))]) }
