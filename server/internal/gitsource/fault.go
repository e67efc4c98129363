package gitsource

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// notReadable is one message for a missing repository and for one without read access: a user without access does
// not learn whether it exists.
const notReadable = "repository not found or not readable"

// notWritable is for users with read access, who know that the repository exists.
const notWritable = "the credential has no push access to the repository"

// fault is the cause of a failed connection between git and the remote. git itself sees only that the connection
// ended. The first fault is the cause, others follow from it. It is safe for concurrent use.
type fault struct {
	mu        sync.Mutex
	problem   string
	detail    string // also for users
	logDetail string // only for the log
	reason    fleet.Reason
	retry     time.Duration
	// hideDetails means that the remote is in a private network. Users do not learn what is wrong there.
	hideDetails bool
	public      bool // the problem is for users even if hideDetails is set
}

// notAnswering is one message for all problems in a private network. A closed port, an open port with another
// protocol and a missing host look the same, so that Git URLs cannot be used to scan ports.
const notAnswering = "no readable repository at this address of a private network: check the URL and the credential; " +
	"the log of the server contains the cause"

// inPrivateNetwork records that the remote is in a private network.
func (f *fault) inPrivateNetwork() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hideDetails = true
}

// setPublic sets a problem that users see even if the remote is in a private network: the server itself found it,
// or the user has read access to the remote.
func (f *fault) setPublic(reason fleet.Reason, problem, detail, logDetail string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem == "" {
		f.reason, f.problem, f.detail, f.logDetail, f.public = reason, problem, detail, logDetail, true
	}
}

// setRetryAfter records how long the remote asks clients to wait.
func (f *fault) setRetryAfter(wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retry = max(f.retry, min(wait, maxRetryAfter))
}

// maxRetryAfter limits how long a remote may ask clients to wait.
const maxRetryAfter = time.Hour

func (f *fault) set(problem, detail, logDetail string) {
	var reason fleet.Reason
	if problem == notReadable {
		reason = fleet.ReasonRepositoryNotReadable
	}
	f.setFor(reason, problem, detail, logDetail)
}

// setFor is set for a problem that a retry does not solve.
func (f *fault) setFor(reason fleet.Reason, problem, detail, logDetail string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem == "" {
		f.reason, f.problem, f.detail, f.logDetail = reason, problem, detail, logDetail
	}
}

// get returns the fault as an error, and the details for the log. It returns nil if there is no fault.
func (f *fault) get(url string) (*RemoteError, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem == "" {
		return nil, ""
	}
	if f.hideDetails && !f.public {
		return &RemoteError{URL: url, Problem: notAnswering, RetryAfter: f.retry}, f.problem + " " + f.detail + " " + f.logDetail
	}
	return &RemoteError{Reason: f.reason, URL: url, Problem: f.problem, Detail: f.detail, RetryAfter: f.retry}, f.logDetail
}

// httpStatus records a response of a web server that is not a success.
func (f *fault) httpStatus(s service, code int, location string) {
	detail := fmt.Sprintf("HTTP %d", code)
	switch {
	case s == receivePack && code >= 401 && code <= 404:
		f.setPublic("", notWritable, detail, "")
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusNotFound, code == http.StatusGone:
		f.set(notReadable, "", detail)
	case code >= 300 && code < 400:
		f.setFor(fleet.ReasonRedirected, "the server redirects, and redirects are not followed: use the final URL", detail, "to "+location)
	case code == http.StatusTooManyRequests:
		f.set("the server asks for fewer requests", detail, "")
	case code >= 500:
		f.set("the server reports an internal error", detail, "")
	default:
		f.set("the server rejected the request", detail, "")
	}
}

// retryAfter parses the Retry-After header, which is a number of seconds or a date. It returns 0 for anything
// else.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil {
		return time.Duration(min(max(seconds, 0), int(maxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// dialError records why a connection failed. Addresses are only for the log, because users must not learn about
// the network of the server.
func (f *fault) dialError(err error) {
	var denied *egress.DeniedError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var dns *net.DNSError
	var timeout net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &denied) && denied.Tenants:
		f.setPublic(fleet.ReasonHostDenied, "the host is in a private network or is the server itself, which Git URLs must not refer to while the server has more than one tenant: the operator of the "+
			"server can allow it with --git-allow-private, or its range with --git-allow-cidr", "", err.Error())
	case errors.As(err, &denied):
		f.setPublic(fleet.ReasonHostDenied, "the address policy of the server denies the host", "", err.Error())
	case errors.As(err, &cert):
		f.set("the TLS certificate is not trusted", cert.Err.Error(), err.Error())
	case errors.As(err, &record), errors.As(err, &alert):
		f.set("the TLS connection failed", "", err.Error())
	case errors.As(err, &dns) && dns.IsNotFound:
		f.setFor(fleet.ReasonHostUnknown, "host not reachable", "the name does not resolve", err.Error())
	case errors.As(err, &dns):
		f.set("host not reachable", "the name does not resolve", err.Error())
	case errors.Is(err, syscall.ECONNREFUSED):
		f.set("host not reachable", "connection refused", err.Error())
	case errors.As(err, &timeout) && timeout.Timeout():
		f.set("host not reachable", "timed out", err.Error())
	case errors.As(err, &op) && op.Op == "dial":
		f.set("host not reachable", "", err.Error())
	default:
		f.set("the connection failed", "", err.Error())
	}
}

// connectionLost records that a connection ended early.
func (f *fault) connectionLost(err error) {
	if !errors.Is(err, context.Canceled) { // git ended it
		f.set("the connection was lost", "", err.Error())
	}
}
