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

// dialTimeout bounds a connection until it stands, over all addresses of a host.
const dialTimeout = 15 * time.Second

// Dialer connects to what its policy allows. The zero Dialer has the zero policy. It is safe for
// concurrent use.
type Dialer struct {
	Policy Policy
	// Resolver finds addresses; nil means that of the system.
	Resolver *net.Resolver
}

type privateKey struct{}

// OnPrivate returns a context for DialContext that calls seen before a connection to an address is tried that the
// policy hides.
func OnPrivate(ctx context.Context, seen func()) context.Context {
	return context.WithValue(ctx, privateKey{}, seen)
}

// DialContext connects to a host and port. What the policy refuses fails with [*DeniedError], also
// when the host has further addresses that are allowed but do not answer.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	if err := d.Policy.CheckHost(host); err != nil {
		return nil, err
	}
	var mu sync.Mutex // addresses of both families are tried at the same time
	var denied error
	dialer := net.Dialer{
		Timeout: dialTimeout, Resolver: d.Resolver,
		// Called with each address that is about to be connected to, and no other.
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
		return errors.Join(&DeniedError{Host: host, Reason: "its address is not understood"}, err)
	}
	if seen, ok := ctx.Value(privateKey{}).(func()); ok && d.Policy.Hides(addr.Addr()) {
		seen()
	}
	return d.Policy.checkAddr(host, addr.Addr())
}
