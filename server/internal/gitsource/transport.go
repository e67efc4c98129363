package gitsource

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"time"

	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// webTransport sends requests to web servers that its dialer allows, or to the operator's proxy if there is one.
// Like every RoundTripper it follows no redirects. It keeps connections open, which saves a fetch most of its
// round trips. Connections carry no identity.
type webTransport struct {
	operatorProxy func(*url.URL) (*url.URL, error)
	policy        *egress.Policy
	direct        *http.Transport
	conn          *http.Transport // via the operator's proxy
}

func newWebTransport(dialer *egress.Dialer, roots *x509.CertPool, operatorProxy func(*url.URL) (*url.URL, error)) *webTransport {
	base := func() *http.Transport {
		return &http.Transport{
			TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: 15 * time.Second,
			IdleConnTimeout:     90 * time.Second,
			MaxIdleConns:        100,
			MaxIdleConnsPerHost: 8,
			ForceAttemptHTTP2:   true,
			// A ping detects a dead idle connection before git times out.
			HTTP2:              &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
			DisableCompression: true, // git and the server negotiate it
		}
	}
	t := &webTransport{operatorProxy: operatorProxy, policy: &dialer.Policy, direct: base(), conn: base()}
	t.direct.DialContext = dialer.DialContext
	t.conn.Proxy = func(r *http.Request) (*url.URL, error) { return operatorProxy(r.URL) }
	return t
}

func (t *webTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	operatorProxy, err := t.operatorProxy(r.URL)
	if err != nil {
		return nil, err
	}
	if operatorProxy == nil {
		return t.direct.RoundTrip(r)
	}
	// The proxy resolves the name and applies the operator's rules. Only the name can be checked here.
	if err := t.policy.CheckHost(r.URL.Hostname()); err != nil {
		return nil, err
	}
	return t.conn.RoundTrip(r)
}

func (t *webTransport) close() {
	t.direct.CloseIdleConnections()
	t.conn.CloseIdleConnections()
}
