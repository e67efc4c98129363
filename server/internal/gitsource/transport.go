package gitsource

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"time"

	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// webTransport speaks to web servers: to those that its dialer allows, or to the operator's own
// proxy where that is set. It follows no redirects, as no RoundTripper does. Connections are kept,
// which spares a fetch most of its round trips; they carry no identity of their own.
type webTransport struct {
	outer   func(*url.URL) (*url.URL, error)
	policy  *egress.Policy
	direct  *http.Transport
	through *http.Transport // the operator's proxy
}

func newWebTransport(dialer *egress.Dialer, roots *x509.CertPool, outer func(*url.URL) (*url.URL, error)) *webTransport {
	base := func() *http.Transport {
		return &http.Transport{
			TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: 15 * time.Second,
			IdleConnTimeout:     90 * time.Second,
			MaxIdleConns:        100,
			MaxIdleConnsPerHost: 8,
			ForceAttemptHTTP2:   true,
			// A connection that died while it was idle is noticed before git loses patience.
			HTTP2:              &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
			DisableCompression: true, // git and the server agree on that
		}
	}
	t := &webTransport{outer: outer, policy: &dialer.Policy, direct: base(), through: base()}
	t.direct.DialContext = dialer.DialContext
	t.through.Proxy = func(r *http.Request) (*url.URL, error) { return outer(r.URL) }
	return t
}

func (t *webTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	outer, err := t.outer(r.URL)
	if err != nil {
		return nil, err
	}
	if outer == nil {
		return t.direct.RoundTrip(r)
	}
	// The proxy finds the addresses, and its rules are the operator's; what can be said of the name
	// is said here.
	if err := t.policy.CheckHost(r.URL.Hostname()); err != nil {
		return nil, err
	}
	return t.through.RoundTrip(r)
}

func (t *webTransport) close() {
	t.direct.CloseIdleConnections()
	t.through.CloseIdleConnections()
}
