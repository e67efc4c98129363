package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Kind says what stands between an agent and its server.
type Kind string

// The kinds of problem. They label metrics, so their number is bounded.
const (
	KindUnreachable Kind = "unreachable" // no route, refused, no such host, timeout
	KindProxy       Kind = "proxy"       // the HTTP proxy refused or failed
	KindTLS         Kind = "tls"         // the server's certificate is not trusted, or there is none
	KindClock       Kind = "clock"       // the certificate says that one of the clocks is wrong
	KindToken       Kind = "token"       // no token, or the server refused it
	KindProtocol    Kind = "protocol"    // what answered is not a Kedge server, or it refused a frame
	KindServer      Kind = "server"      // the server says that it cannot serve now
	KindLost        Kind = "lost"        // a connection that worked broke off
	KindEngine      Kind = "engine"      // the cluster side could not be started
)

// Problem is why an agent is not connected, in words for whoever operates it.
type Problem struct {
	Kind Kind
	Hint string // what it means and what to do
	Err  error
}

func (p *Problem) Error() string { return p.Hint + ": " + p.Err.Error() }
func (p *Problem) Unwrap() error { return p.Err }

// configError is a problem on this side: files and settings.
type configError struct {
	kind Kind
	err  error
}

func (e *configError) Error() string { return e.err.Error() }
func (e *configError) Unwrap() error { return e.err }

// dialError says that there never was a connection.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// unwelcome says that a connection ended before the server let the agent in.
type unwelcome struct{ err error }

func (e *unwelcome) Error() string { return e.err.Error() }
func (e *unwelcome) Unwrap() error { return e.err }

var (
	errNoWelcome = errors.New("no welcome came in time")
	errEarlyEnd  = errors.New("the stream ended before the welcome")
	// errLeft says that the agent has ended its side of a stream.
	errLeft = errors.New("leaving, to come back with a new token")
)

type engineError struct{ err error }

func (e *engineError) Error() string { return e.err.Error() }
func (e *engineError) Unwrap() error { return e.err }

// goodbye is the orderly end of a connection by the server.
type goodbye struct {
	reason string
	within time.Duration
}

func (g *goodbye) Error() string { return "the server said goodbye: " + g.reason }

// classify is the one place that knows how foreign libraries put their errors.
func classify(err error, cfg Config, addr address) *Problem {
	var local *configError
	var engine *engineError
	var dial *dialError
	switch {
	case errors.As(err, &local):
		return &Problem{local.kind, "this agent is not set up right", err}
	case errors.As(err, &engine):
		return &Problem{KindEngine, "connected, but the cluster cannot be worked on", err}
	case errors.As(err, &dial):
		return classifyDial(dial.err, cfg, addr)
	case errors.Is(err, errNoWelcome):
		return &Problem{KindServer, fmt.Sprintf("%s took the connection and does not answer: the server may be overloaded, or a proxy in between may hold answers back", addr), err}
	case errors.Is(err, errEarlyEnd):
		return &Problem{KindServer, fmt.Sprintf("%s took the connection and ended it at once: the server may be stopping, or a proxy in between may not let it through", addr), err}
	}
	switch status.Code(err) {
	case codes.Unauthenticated:
		return &Problem{KindToken, fmt.Sprintf("the server refused the token in %s: it was revoked, or this agent was deleted at the server; "+
			"what it has deployed stays. Give it a new token, or enrol it anew", cfg.Tokens), err}
	case codes.Unimplemented, codes.InvalidArgument, codes.Unknown, codes.Internal:
		return &Problem{KindProtocol, fmt.Sprintf("%s does not answer like a Kedge server", addr), err}
	case codes.ResourceExhausted:
		return &Problem{KindServer, "the server has no room for this agent now, or was sent too much at once; nothing is lost, and what it has not confirmed is sent again", err}
	default:
		return &Problem{KindLost, "the connection broke off", err}
	}
}

func classifyDial(err error, cfg Config, addr address) *Problem {
	if p := classifyTLS(err, cfg, addr); p != nil {
		return p
	}
	var proxy *proxyError
	var upgrade *upgradeError
	var dns *net.DNSError
	switch {
	case errors.As(err, &proxy):
		return &Problem{KindProxy, "the proxy does not let the agent through (HTTPS_PROXY, HTTP_PROXY, NO_PROXY)", err}
	case errors.As(err, &upgrade):
		return &Problem{KindProtocol, fmt.Sprintf("%s takes no WebSocket: check host and path", addr), err}
	case errors.As(err, &dns):
		return &Problem{KindUnreachable, fmt.Sprintf("the name %s cannot be resolved", addr.host), err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Problem{KindUnreachable, fmt.Sprintf("%s does not answer: a firewall may drop the connection", addr), err}
	default:
		return &Problem{KindUnreachable, fmt.Sprintf("%s cannot be reached", addr), err}
	}
}

func classifyTLS(err error, cfg Config, addr address) *Problem {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &authority):
		hint := fmt.Sprintf("the certificate of %s is signed by an authority that this machine does not trust: give the server's CA with --ca-cert-file", addr)
		if cfg.CAFile != "" {
			hint = fmt.Sprintf("the certificate of %s is not signed by the CA in %s: is it the CA of this server?", addr, cfg.CAFile)
		}
		return &Problem{KindTLS, hint, err}
	case errors.As(err, &host):
		return &Problem{KindTLS, fmt.Sprintf("the certificate of %s is for other names: use one of them as address, or add --tls-host at the server", addr), err}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return classifyTime(err, invalid.Cert)
	case errors.As(err, &record):
		return &Problem{KindTLS, fmt.Sprintf("%s does not speak TLS on that port: use grpc:// or ws://, or another port", addr), err}
	case errors.As(err, &invalid), errors.As(err, &alert):
		return &Problem{KindTLS, fmt.Sprintf("no TLS connection to %s", addr), err}
	}
	return nil
}

func classifyTime(err error, cert *x509.Certificate) *Problem {
	now := time.Now()
	if cert != nil && now.Before(cert.NotBefore) {
		return &Problem{KindClock, fmt.Sprintf("the server's certificate is not valid before %s, and the clock here says %s: check both clocks",
			cert.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)), err}
	}
	if cert != nil {
		return &Problem{KindTLS, fmt.Sprintf("the server's certificate has expired at %s (the clock here says %s)",
			cert.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)), err}
	}
	return &Problem{KindTLS, "the server's certificate is out of date", err}
}
