package gitsource

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"
)

// route is how one call reaches a repository. git connects only to this process, over a connection for each run:
//
//	https, http   a proxy on loopback, which alone knows the remote and the credential
//	ssh           a socket that git inherits; the SSH client is at its other end
//	file          none: the files are on this machine
type route struct {
	url  string // of the repository, for errors
	from requester
	// connect opens the connection of one run of git to a service of the remote.
	connect func(ctx context.Context, s service) (*connection, error)
	budget  *budget
	// timeout limits one run, without the wait for a slot.
	timeout time.Duration
	timer   *time.Timer
	// answered means that the remote has answered, so that the access is verified.
	answered bool
}

// service is a service of the remote, by the name of git's program for it. A connection for one service cannot
// reach another.
type service string

const (
	uploadPack  service = "git-upload-pack"  // reading
	receivePack service = "git-receive-pack" // writing
)

// connection connects one run of git to the remote.
type connection struct {
	url       string     // for git
	transport string     // the only one that git may use
	config    []setting  // for this run
	files     []*os.File // inherited by git, from descriptor 3 on; closed when git has started
	fault     fault
	closers   []func()
}

func (p *connection) close() {
	p.closeFiles()
	for _, end := range p.closers {
		end()
	}
	p.closers = nil
}

// closeFiles closes this process's copies of git's files. Otherwise the other end would never see the end of the
// stream.
func (p *connection) closeFiles() {
	for _, f := range p.files {
		_ = f.Close() // nothing was written to it
	}
	p.files = nil
}

// withTimeout limits a call to the timeout of the route, without the waits for slots. The caller calls cancel.
func (v *route) withTimeout(ctx context.Context) (bounded context.Context, cancel func()) {
	bounded, end := context.WithCancelCause(ctx)
	v.timer = time.AfterFunc(v.timeout, func() { end(context.DeadlineExceeded) })
	return bounded, func() {
		v.timer.Stop()
		end(context.Canceled)
	}
}

// open opens the connection of one run of git when the budget allows a request to the host. All requests to a
// remote use it. The caller closes the connection, even after an error.
func (v *route) open(ctx context.Context, s service) (*connection, error) {
	v.timer.Stop()
	end, err := v.acquire(ctx)
	v.timer.Reset(v.timeout)
	var left *RemoteError
	if errors.As(err, &left) {
		left.URL = v.url
	}
	if err != nil {
		return &connection{}, err
	}
	p, err := v.connect(ctx, s)
	p.closers = append(p.closers, func() {
		if problem, _ := p.fault.get(v.url); problem != nil && problem.RetryAfter > 0 {
			v.budget.backOff(v.from, problem)
		}
		end()
	})
	return p, err
}

// acquire waits for a slot, but not forever: the caller may hold something that others need, such as a slot for
// renders.
func (v *route) acquire(ctx context.Context) (end func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	end, err = v.budget.acquire(waiting, v.from)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return nil, &RemoteError{Problem: fmt.Sprintf("too many requests to the host: no request could start within %s", v.timeout)}
	}
	return end, err
}

// route returns the route of a handle.
func (m *Manager) route(u *handle) (*route, error) {
	a := u.access
	out := &route{url: a.URL, from: requester{a.Owner, Host(a.URL), u.reader}, budget: m.budget, timeout: m.cfg.Timeout}
	var err error
	switch {
	case !strings.Contains(a.URL, "://"), strings.HasPrefix(a.URL, "ssh://"):
		out.connect, err = m.sshConnector(a)
	case strings.HasPrefix(a.URL, "file://"):
		out.connect = func(context.Context, service) (*connection, error) {
			return &connection{url: a.URL, transport: "file"}, nil
		}
	default:
		out.connect, err = m.httpConnector(a)
	}
	return out, err
}

func (m *Manager) httpConnector(a Access) (func(context.Context, service) (*connection, error), error) {
	target, err := url.Parse(a.URL)
	if err != nil {
		return nil, badURL("not a valid URL") // CheckURL accepted it
	}
	auth, err := a.basicAuth(target)
	if err != nil {
		return nil, err
	}
	target.User = auth
	return func(_ context.Context, s service) (*connection, error) { return m.proxy.open(target, s), nil }, nil
}

// isThisMachine reports whether a host is this machine, independent of DNS.
func isThisMachine(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && addr.Unmap().IsLoopback())
}
