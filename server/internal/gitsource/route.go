package gitsource

import (
	"context"
	"net/netip"
	"net/url"
	"os"
	"strings"
)

// route is how one call reaches a repository. git never connects to anything but this process, by
// a way that is made for each of its runs:
//
//	https, http   our proxy on loopback, which alone knows the remote and the credential
//	ssh           a socket that is handed to git; the SSH client is at its other end
//	file          none: the files are here
type route struct {
	url string // the repository's, for errors
	// open makes the way for one run of git.
	open func(ctx context.Context) (*passage, error)
	// asked says that the remote has answered, so that the access is known to be good.
	asked bool
}

// passage is the way of one run of git to the remote.
type passage struct {
	url       string     // what git is told
	transport string     // the only one that git may use
	env       []string   // for this run
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

// route returns the way of an access whose URL was checked.
func (m *Manager) route(a Access) (*route, error) {
	out := &route{url: a.URL}
	var err error
	switch {
	case !strings.Contains(a.URL, "://"), strings.HasPrefix(a.URL, "ssh://"):
		out.open, err = m.sshRoute(a)
	case strings.HasPrefix(a.URL, "file://"):
		out.open = func(context.Context) (*passage, error) { return &passage{url: a.URL, transport: "file"}, nil }
	default:
		out.open, err = m.httpRoute(a)
	}
	return out, err
}

func (m *Manager) httpRoute(a Access) (func(context.Context) (*passage, error), error) {
	target, err := url.Parse(a.URL)
	if err != nil {
		return nil, badURL("not a valid URL") // CheckURL has seen it
	}
	auth, err := a.basicAuth(target)
	if err != nil {
		return nil, err
	}
	target.User = auth
	return func(context.Context) (*passage, error) { return m.proxy.open(target), nil }, nil
}

// isThisMachine reports whether a host is this machine whoever answers for names.
func isThisMachine(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && addr.Unmap().IsLoopback())
}
