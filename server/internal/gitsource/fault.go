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

	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// notReadable is the one text for a repository that is not there and for one that may not be read:
// who may not read it does not learn whether it exists.
const notReadable = "repository not found or not readable"

// notWritable is for who may read, and so may know that the repository is there.
const notWritable = "the credential may not push to the repository"

// fault is what went wrong between git and the remote, told by who saw it happen; git itself only
// sees its end. The first fault counts, others follow from it. It is safe for concurrent use.
type fault struct {
	mu      sync.Mutex
	problem string
	detail  string // for users as well
	private string // for the log alone
	reason  Reason
	retry   time.Duration
	// coarse says that the remote is in a private network: users are not told what is wrong there.
	coarse bool
	told   bool // the problem is told all the same
}

// notAnswering is the one text for whatever goes wrong on the way to a private network: a closed port, an open one
// that speaks something else and a host that is not there look the same, so that Git URLs are no port scanner.
const notAnswering = "no repository that can be read answers at this address of a private network: check the URL and the credential; " +
	"the reason is in the server's log"

// inPrivateNetwork notes that the remote is in a private network.
func (f *fault) inPrivateNetwork() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.coarse = true
}

// tell sets a problem that users are told of wherever the remote is: one that the server itself found, or
// one of a remote that has shown the user its repository before.
func (f *fault) tell(reason Reason, problem, detail, private string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem == "" {
		f.reason, f.problem, f.detail, f.private, f.told = reason, problem, detail, private, true
	}
}

// later notes how long the remote wants to be left alone.
func (f *fault) later(wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retry = max(f.retry, min(wait, maxRetryAfter))
}

// maxRetryAfter bounds what a remote may ask for.
const maxRetryAfter = time.Hour

func (f *fault) set(problem, detail, private string) {
	var reason Reason
	if problem == notReadable {
		reason = ReasonNotReadable
	}
	f.setFor(reason, problem, detail, private)
}

// setFor is set for what trying again would not help against.
func (f *fault) setFor(reason Reason, problem, detail, private string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem == "" {
		f.reason, f.problem, f.detail, f.private = reason, problem, detail, private
	}
}

// get returns the fault as an error, with what is for the log alone, or nil.
func (f *fault) get(url string) (*RemoteError, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem == "" {
		return nil, ""
	}
	if f.coarse && !f.told {
		return &RemoteError{URL: url, Problem: notAnswering, RetryAfter: f.retry}, f.problem + " " + f.detail + " " + f.private
	}
	return &RemoteError{Reason: f.reason, URL: url, Problem: f.problem, Detail: f.detail, RetryAfter: f.retry}, f.private
}

// status notes an answer of a web server that is not a success.
func (f *fault) status(s service, code int, location string) {
	detail := fmt.Sprintf("HTTP %d", code)
	switch {
	case s == receivePack && code >= 401 && code <= 404:
		f.tell("", notWritable, detail, "")
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusNotFound, code == http.StatusGone:
		f.set(notReadable, "", detail)
	case code >= 300 && code < 400:
		f.setFor(ReasonRedirected, "the server redirects elsewhere, which is not followed: use the final URL", detail, "to "+location)
	case code == http.StatusTooManyRequests:
		f.set("the server asks to be called less often", detail, "")
	case code >= 500:
		f.set("the server failed", detail, "")
	default:
		f.set("the server refused", detail, "")
	}
}

// retryAfter reads the header of that name, which is a number of seconds or a date; 0 when it says
// nothing.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil {
		return time.Duration(min(max(seconds, 0), int(maxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// connection notes why there is no connection. Addresses are for the log alone: names of the
// network that the server is in are not for everybody.
func (f *fault) connection(err error) {
	var denied *egress.DeniedError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var dns *net.DNSError
	var timeout net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &denied) && denied.Tenants:
		f.tell(ReasonHostDenied, "the host is in a private network or on the server itself, where Git URLs may not lead while the server has more than one tenant: the operator of the "+
			"server allows it with --git-allow-private, or its range with --git-allow-cidr", "", err.Error())
	case errors.As(err, &denied):
		f.tell(ReasonHostDenied, "the host is not allowed by the server's address policy", "", err.Error())
	case errors.As(err, &cert):
		f.set("the TLS certificate is not trusted", cert.Err.Error(), err.Error())
	case errors.As(err, &record), errors.As(err, &alert):
		f.set("the TLS connection failed", "", err.Error())
	case errors.As(err, &dns) && dns.IsNotFound:
		f.setFor(ReasonHostUnknown, "host not reachable", "the name has no address", err.Error())
	case errors.As(err, &dns):
		f.set("host not reachable", "the name has no address", err.Error())
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

// broken notes that a connection ended before its time.
func (f *fault) broken(err error) {
	if !errors.Is(err, context.Canceled) { // git has had enough
		f.set("the connection broke", "", err.Error())
	}
}
