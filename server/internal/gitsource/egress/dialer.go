package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// dialTimeout limits the time to connect, over all addresses of a host.
const dialTimeout = 15 * time.Second

// Dialer connects to hosts that its policy allows. The zero Dialer has the zero policy. It is safe for concurrent
// use.
type Dialer struct {
	Policy Policy
	// Resolver resolves names; default the resolver of the operating system.
	Resolver *net.Resolver
}

type privateKey struct{}

// WithPrivateHook returns a context for DialContext that calls hook before a connection attempt to an address
// that the policy hides.
func WithPrivateHook(ctx context.Context, hook func()) context.Context {
	return context.WithValue(ctx, privateKey{}, hook)
}

// DialContext connects to a host and port. It returns a [*DeniedError] if the policy denies the host or one of
// its addresses, even if the host has other addresses that are allowed but do not answer.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	if err := d.Policy.CheckHost(host); err != nil {
		return nil, err
	}
	var mu sync.Mutex // addresses of both families are tried concurrently
	var denied error
	dialer := net.Dialer{
		Timeout: dialTimeout, Resolver: d.Resolver,
		// It is called with exactly the address of each connection attempt.
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			err := d.checkSocket(ctx, host, address)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				denied = err
			}
			return err
		},
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if err == nil {
		return conn, nil
	}
	mu.Lock()
	defer mu.Unlock()
	if denied != nil {
		return nil, denied
	}
	return nil, err
}

func (d *Dialer) checkSocket(ctx context.Context, host, address string) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return errors.Join(&DeniedError{Host: host, Reason: "its address is invalid"}, err)
	}
	if hook, ok := ctx.Value(privateKey{}).(func()); ok && d.Policy.Hides(addr.Addr()) {
		hook()
	}
	return d.Policy.checkAddr(host, addr.Addr())
}
