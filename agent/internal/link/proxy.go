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

// proxyError is a failure of the proxy, not of the server.
type proxyError struct {
	proxy string // without credentials
	err   error
}

func (e *proxyError) Error() string { return fmt.Sprintf("proxy %s: %v", e.proxy, e.err) }
func (e *proxyError) Unwrap() error { return e.err }

func (d *dialer) proxy() (*url.URL, error) {
	if d.cfg.Proxy == nil {
		return nil, nil
	}
	u, err := d.cfg.Proxy(&http.Request{URL: d.addr.url(), Header: http.Header{}})
	if err != nil {
		return nil, &proxyError{proxy: "of the environment", err: err}
	}
	return u, nil
}

// dialViaProxy opens a tunnel to target through an HTTP proxy.
func dialViaProxy(ctx context.Context, proxy *url.URL, target string) (net.Conn, error) {
	conn, err := dialProxy(ctx, proxy)
	if err != nil {
		return nil, &proxyError{proxy: proxy.Redacted(), err: err}
	}
	tunnel, err := openTunnel(ctx, conn, proxy, target)
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
		return nil, fmt.Errorf("the scheme %q is not supported, only http and https", proxy.Scheme)
	}
}

func openTunnel(ctx context.Context, conn net.Conn, proxy *url.URL, target string) (net.Conn, error) {
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
		return nil, fmt.Errorf("requesting a tunnel to %s: %w", target, err)
	}
	// The response to CONNECT has only headers, so that a longer one is not valid.
	resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(byteReader{conn}, 64<<10)), req) //nolint:bodyclose // its body is the tunnel
	if err != nil {
		return nil, fmt.Errorf("reading the response: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the proxy refused a tunnel to %s: %s", target, resp.Status)
	}
	return conn, conn.SetDeadline(time.Time{})
}

// byteReader returns one byte at a time, so that the buffered reader does not read beyond the headers: the following bytes
// belong to the tunnel.
type byteReader struct{ r io.Reader }

func (b byteReader) Read(p []byte) (int, error) { return b.r.Read(p[:min(1, len(p))]) }
