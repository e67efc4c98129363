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

// Kind classifies why an agent is not connected.
type Kind string

// The kinds of problem. They label metrics, so their number is bounded.
const (
	KindUnreachable Kind = "unreachable" // no route, refused, no such host, timeout
	KindProxy       Kind = "proxy"       // the HTTP proxy refused or failed
	KindTLS         Kind = "tls"         // the server's certificate is not trusted, or the server does not use TLS
	KindClock       Kind = "clock"       // a clock is wrong, according to the validity of the certificate
	KindToken       Kind = "token"       // no token, or the server refused it
	KindProtocol    Kind = "protocol"    // the other side is not a Kedge server, or it refused a frame
	KindServer      Kind = "server"      // the server cannot serve the agent now
	KindLost        Kind = "lost"        // a working connection was lost
	KindEngine      Kind = "engine"      // the engine could not be started
)

// Problem is why an agent is not connected, for people who operate it.
type Problem struct {
	Kind Kind
	Hint string // meaning and remedy
	Err  error
}

func (p *Problem) Error() string { return p.Hint + ": " + p.Err.Error() }
func (p *Problem) Unwrap() error { return p.Err }

// configError is a problem of the agent's files and settings.
type configError struct {
	kind Kind
	err  error
}

func (e *configError) Error() string { return e.err.Error() }
func (e *configError) Unwrap() error { return e.err }

// dialError means that there was no transport connection.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// beforeWelcomeError means that a connection ended before the server accepted the agent.
type beforeWelcomeError struct{ err error }

func (e *beforeWelcomeError) Error() string { return e.err.Error() }
func (e *beforeWelcomeError) Unwrap() error { return e.err }

var (
	errNoWelcome          = errors.New("the server did not send Welcome in time")
	errEndedBeforeWelcome = errors.New("the stream ended before Welcome")
	// errClosed means that the agent has closed its side of a stream.
	errClosed = errors.New("reconnecting with a new token")
)

// engineError means that the engine could not be started.
type engineError struct{ err error }

func (e *engineError) Error() string { return e.err.Error() }
func (e *engineError) Unwrap() error { return e.err }

// goodbye means that the server has closed the connection on purpose.
type goodbye struct {
	reason          string
	reconnectWithin time.Duration
}

func (g *goodbye) Error() string { return "the server closed the connection: " + g.reason }

// classify is the only place that inspects the errors of other libraries.
func classify(err error, cfg Config, addr address) *Problem {
	var local *configError
	var engine *engineError
	var dial *dialError
	switch {
	case errors.As(err, &local):
		return &Problem{local.kind, "the configuration of this agent is wrong", err}
	case errors.As(err, &engine):
		return &Problem{KindEngine, "connected, but the engine does not start", err}
	case errors.As(err, &dial):
		return classifyDial(dial.err, cfg, addr)
	case errors.Is(err, errNoWelcome):
		return &Problem{KindServer, fmt.Sprintf("%s accepted the connection and does not answer: the server may be overloaded, or a proxy may buffer responses", addr), err}
	case errors.Is(err, errEndedBeforeWelcome):
		return &Problem{KindServer, fmt.Sprintf("%s accepted the connection and closed it at once: the server may be stopping, or a proxy may not support gRPC", addr), err}
	}
	switch status.Code(err) {
	case codes.Unauthenticated:
		return &Problem{KindToken, fmt.Sprintf("the server refused the token in %s: it was revoked, or this agent was deleted on the server; "+
			"deployed objects stay. Set a new token, or enroll the agent again", cfg.Tokens), err}
	case codes.Unimplemented, codes.InvalidArgument, codes.Unknown, codes.Internal:
		return &Problem{KindProtocol, fmt.Sprintf("%s is not a Kedge server", addr), err}
	case codes.ResourceExhausted:
		return &Problem{KindServer, "the server is at a limit, or has throttled this agent; the agent sends again what the server has not confirmed", err}
	default:
		return &Problem{KindLost, "the connection was lost", err}
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
		return &Problem{KindProxy, "the proxy refuses the connection (check HTTPS_PROXY, HTTP_PROXY and NO_PROXY)", err}
	case errors.As(err, &upgrade):
		return &Problem{KindProtocol, fmt.Sprintf("%s does not accept WebSocket connections: check host and path", addr), err}
	case errors.As(err, &dns):
		return &Problem{KindUnreachable, fmt.Sprintf("the host name %s cannot be resolved", addr.host), err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Problem{KindUnreachable, fmt.Sprintf("%s does not answer: a firewall may drop packets", addr), err}
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
		hint := fmt.Sprintf("the certificate of %s is signed by an authority that this machine does not trust: set --ca-cert-file to the CA of the server", addr)
		if cfg.CAFile != "" {
			hint = fmt.Sprintf("the certificate of %s is not signed by the CA in %s: check that it is the CA of this server", addr, cfg.CAFile)
		}
		return &Problem{KindTLS, hint, err}
	case errors.As(err, &host):
		return &Problem{KindTLS, fmt.Sprintf("the certificate of %s is for other host names: use one of them in --server-address, or add --tls-host on the server", addr), err}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return classifyTime(err, invalid.Cert)
	case errors.As(err, &record):
		return &Problem{KindTLS, fmt.Sprintf("%s does not use TLS on that port: use grpc:// or ws://, or another port", addr), err}
	case errors.As(err, &invalid), errors.As(err, &alert):
		return &Problem{KindTLS, fmt.Sprintf("no TLS connection to %s", addr), err}
	}
	return nil
}

func classifyTime(err error, cert *x509.Certificate) *Problem {
	now := time.Now()
	if cert != nil && now.Before(cert.NotBefore) {
		return &Problem{KindClock, fmt.Sprintf("the server's certificate is not valid before %s, and the local time is %s: check both clocks",
			cert.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)), err}
	}
	if cert != nil {
		return &Problem{KindTLS, fmt.Sprintf("the server's certificate expired at %s (the local time is %s)",
			cert.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)), err}
	}
	return &Problem{KindTLS, "the server's certificate has expired", err}
}
