package child

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/render/sandbox"
)

// Probe starts a child, which waits for the first build, and reports how it is confined. It fails when
// there is no rendering here at all, or not as confined as is required.
func (p *Pool) Probe(ctx context.Context) (sandbox.Status, error) {
	ctx, done, err := p.begin(ctx)
	if err != nil {
		return sandbox.Status{}, err
	}
	defer done()
	c, err := p.start(ctx)
	if err != nil {
		return sandbox.Status{}, err
	}
	status := c.status
	if c.weak {
		c.kill()
	} else {
		p.idleProcesses.put(c)
	}
	return status, nil
}

// Status is how the child is confined that was started last; ok is false as long as none was.
func (p *Pool) Status() (status sandbox.Status, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status, p.probed
}

// Failure is why no child could be started when that was last tried; nil when one was.
func (p *Pool) Failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure
}

// start starts a child and remembers what became of that.
func (p *Pool) start(ctx context.Context) (*process, error) {
	c, err := p.launch(ctx)
	if ctx.Err() == nil { // who gives up has found out nothing
		p.mu.Lock()
		p.failure = err
		p.mu.Unlock()
	}
	return c, err
}

// launch starts a child with the best isolation that this system lets us have, and finds out which that is
// until it is settled.
func (p *Pool) launch(ctx context.Context) (*process, error) {
	p.mu.Lock()
	candidates := sandbox.Isolations()
	switch {
	case slices.Contains(p.cfg.Off, sandbox.Namespaces):
		candidates = []sandbox.Isolation{{}}
	case p.settled:
		candidates = []sandbox.Isolation{p.isolation}
	}
	p.mu.Unlock()
	settled := true
	var first error
	for _, isolation := range candidates {
		if first != nil {
			isolation.Problem = explain(first)
		}
		c, err := start(ctx, p.cfg.Program, p.options(isolation), p.thread.run)
		if err == nil {
			c.weak = !settled
			return p.admitted(c, isolation)
		}
		if !refused(err) {
			return nil, err
		}
		settled = settled && !passes(err)
		if first == nil {
			first = err
		}
	}
	return nil, first
}

func (p *Pool) options(isolation sandbox.Isolation) sandbox.Options {
	return sandbox.Options{Memory: p.cfg.Limits.Memory, CPU: p.cfg.Limits.cpu(), Isolation: isolation, Off: p.cfg.Off}
}

// refused reports whether the system does not let us isolate a process as asked: it was not started, or
// has ended before it said anything.
func refused(err error) bool {
	for _, errno := range []error{syscall.EPERM, syscall.EACCES, syscall.EINVAL, syscall.ENOSYS, syscall.ENOSPC, io.EOF} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// passes reports whether an isolation that was refused may be had another time: all namespaces were in use,
// or memory was so short that the child was ended.
func passes(err error) bool {
	return errors.Is(err, syscall.ENOSPC) && !switchedOff() || errors.Is(err, io.EOF)
}

// switchedOff reports whether this system has no user namespaces at all, which is for good.
func switchedOff() bool {
	most, err := os.ReadFile("/proc/sys/user/max_user_namespaces")
	return err == nil && strings.TrimSpace(string(most)) == "0"
}

// explain says why a process may not be isolated as asked, in words that lead to what can be changed.
func explain(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "user namespaces are switched off, or all in use: see sysctl user.max_user_namespaces"
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return "the kernel or the container runtime does not let this user have namespaces"
	}
	return clean(err.Error(), 200)
}

// admitted remembers how a child was started, and checks whether that is good enough.
func (p *Pool) admitted(c *process, isolation sandbox.Isolation) (*process, error) {
	p.mu.Lock()
	before, known := p.status.Problem(), p.probed
	p.probed, p.status = true, c.status
	if !c.weak {
		p.settled, p.isolation = true, isolation
	}
	p.mu.Unlock()
	if now := c.status.Problem(); known && now != before {
		p.cfg.Log.Warn("the sandbox of renders has changed", obs.KeyReason, cmp.Or(now, "nothing is missing any more"))
	}
	for _, m := range p.cfg.Require {
		if reason, lacks := c.status.Lacks(m); lacks {
			c.kill()
			return nil, fmt.Errorf("renders are required to be confined by %s, which is not to be had here: %s", m, reason)
		}
	}
	return c, nil
}
