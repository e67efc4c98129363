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

// route is how one call reaches a repository. git never connects to anything but this process, by
// a way that is made for each of its runs:
//
//	https, http   our proxy on loopback, which alone knows the remote and the credential
//	ssh           a socket that is handed to git; the SSH client is at its other end
//	file          none: the files are here
type route struct {
	url string // the repository's, for errors
	who asker
	// way makes the way for one run of git to a service of the remote.
	way    func(ctx context.Context, s service) (*passage, error)
	budget *budget
	// timeout bounds one run, from when it has its turn.
	timeout time.Duration
	clock   *time.Timer
	// asked says that the remote has answered, so that the access is known to be good.
	asked bool
}

// service is what the remote is asked to do, by the name of git's program for it. A way that was made
// for one leads to no other.
type service string

const (
	uploadPack  service = "git-upload-pack"  // reading
	receivePack service = "git-receive-pack" // writing
)

// passage is the way of one run of git to the remote.
type passage struct {
	url       string     // what git is told
	transport string     // the only one that git may use
	config    []setting  // for this run
	files     []*os.File // git's, from descriptor 3 on; closed as soon as git runs
	fault     fault
	closers   []func()
}

func (p *passage) close() {
	p.closeFiles()
	for _, end := range p.closers {
		end()
	}
	p.closers = nil
}

// closeFiles closes this process's copies of what is git's, without which an end is never seen.
func (p *passage) closeFiles() {
	for _, f := range p.files {
		_ = f.Close() // nothing was written here: nothing is lost
	}
	p.files = nil
}

// within bounds a call by the timeout of the route, in which waiting for turns does not count. The caller
// calls cancel.
func (v *route) within(ctx context.Context) (bounded context.Context, cancel func()) {
	bounded, end := context.WithCancelCause(ctx)
	v.clock = time.AfterFunc(v.timeout, func() { end(context.DeadlineExceeded) })
	return bounded, func() {
		v.clock.Stop()
		end(context.Canceled)
	}
}

// open makes the way for one run of git when the host may be asked. There is no other way out: whatever
// reaches a remote is within its budget. The caller closes the passage, also when there is an error.
func (v *route) open(ctx context.Context, s service) (*passage, error) {
	v.clock.Stop()
	end, err := v.turn(ctx)
	v.clock.Reset(v.timeout)
	var left *RemoteError
	if errors.As(err, &left) {
		left.URL = v.url
	}
	if err != nil {
		return &passage{}, err
	}
	p, err := v.way(ctx, s)
	p.closers = append(p.closers, func() {
		if said, _ := p.fault.get(v.url); said != nil && said.RetryAfter > 0 {
			v.budget.leaveAlone(v.who, said)
		}
		end()
	})
	return p, err
}

// turn waits for a turn, but not for ever: who waits may hold something that others need, such as a place for renders.
func (v *route) turn(ctx context.Context) (end func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	end, err = v.budget.turn(waiting, v.who)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return nil, &RemoteError{Problem: fmt.Sprintf("the host has been asked so much that it was nobody's turn for %s", v.timeout)}
	}
	return end, err
}

// route returns the way of a use.
func (m *Manager) route(u *use) (*route, error) {
	a := u.access
	out := &route{url: a.URL, who: asker{a.Owner, Host(a.URL), u.reader}, budget: m.budget, timeout: m.cfg.Timeout}
	var err error
	switch {
	case !strings.Contains(a.URL, "://"), strings.HasPrefix(a.URL, "ssh://"):
		out.way, err = m.sshRoute(a)
	case strings.HasPrefix(a.URL, "file://"):
		out.way = func(context.Context, service) (*passage, error) { return &passage{url: a.URL, transport: "file"}, nil }
	default:
		out.way, err = m.httpRoute(a)
	}
	return out, err
}

func (m *Manager) httpRoute(a Access) (func(context.Context, service) (*passage, error), error) {
	target, err := url.Parse(a.URL)
	if err != nil {
		return nil, badURL("not a valid URL") // CheckURL has seen it
	}
	auth, err := a.basicAuth(target)
	if err != nil {
		return nil, err
	}
	target.User = auth
	return func(_ context.Context, s service) (*passage, error) { return m.proxy.open(target, s), nil }, nil
}

// isThisMachine reports whether a host is this machine whoever answers for names.
func isThisMachine(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && addr.Unmap().IsLoopback())
}
