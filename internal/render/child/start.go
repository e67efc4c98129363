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

// Probe starts a child, which stays for the first build, and returns its confinement. It fails if no render is
// possible here, or if a required mechanism is missing.
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

// Status returns the confinement of the child that was started last; ok is false before the first start.
func (p *Pool) Status() (status sandbox.Status, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status, p.probed
}

// Failure returns why the last start of a child failed, or nil.
func (p *Pool) Failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure
}

// start starts a child and records the result.
func (p *Pool) start(ctx context.Context) (*process, error) {
	c, err := p.launch(ctx)
	if ctx.Err() == nil { // a canceled start proves nothing
		p.mu.Lock()
		p.failure = err
		p.mu.Unlock()
	}
	return c, err
}

// launch starts a child with the best isolation that this system allows, and determines it until it is settled.
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

// refused reports whether the system does not allow the isolation: the process was not started, or ended before
// its hello message.
func refused(err error) bool {
	for _, errno := range []error{syscall.EPERM, syscall.EACCES, syscall.EINVAL, syscall.ENOSYS, syscall.ENOSPC, io.EOF} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// passes reports whether a refusal may be transient: all namespaces were in use, or the child was killed
// because memory was short.
func passes(err error) bool {
	return errors.Is(err, syscall.ENOSPC) && !switchedOff() || errors.Is(err, io.EOF)
}

// switchedOff reports whether this system has no user namespaces at all, which is permanent.
func switchedOff() bool {
	most, err := os.ReadFile("/proc/sys/user/max_user_namespaces")
	return err == nil && strings.TrimSpace(string(most)) == "0"
}

// explain returns why a process cannot be isolated, with a hint at the setting to change.
func explain(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "user namespaces are switched off, or all in use: see sysctl user.max_user_namespaces"
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return "the kernel or the container runtime does not allow namespaces for this user"
	}
	return clean(err.Error(), 200)
}

// admitted records how a child was started, and checks the required mechanisms.
func (p *Pool) admitted(c *process, isolation sandbox.Isolation) (*process, error) {
	p.mu.Lock()
	before, known := p.status.Problem(), p.probed
	p.probed, p.status = true, c.status
	if !c.weak {
		p.settled, p.isolation = true, isolation
	}
	p.mu.Unlock()
	if now := c.status.Problem(); known && now != before {
		p.cfg.Log.Warn("the sandbox of renders has changed", obs.KeyReason, cmp.Or(now, "all mechanisms are available"))
	}
	for _, m := range p.cfg.Require {
		if reason, lacks := c.status.Lacks(m); lacks {
			c.kill()
			return nil, fmt.Errorf("the required confinement of renders by %s is not available here: %s", m, reason)
		}
	}
	return c, nil
}
