package egress_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress/egresstest"
)

// good represents a public address: it is allowed, and this machine listens on it.
var good = netip.MustParseAddr("127.0.0.2")

func goodOnly() egress.Policy {
	return egress.Policy{AllowCIDRs: []netip.Prefix{netip.PrefixFrom(good, 32)}}
}

// listenBoth listens on one port of the good address and of 127.0.0.1, counts the connections to
// the latter, and returns the port.
func listenBoth(t *testing.T) (port string, bad *atomic.Int64) {
	t.Helper()
	bad = new(atomic.Int64)
	allowed, err := net.Listen("tcp", net.JoinHostPort(good.String(), "0"))
	if err != nil {
		t.Skipf("this machine has only one loopback address: %v", err)
	}
	t.Cleanup(func() { allowed.Close() })
	_, port, _ = net.SplitHostPort(allowed.Addr().String())
	rejected, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Skipf("the port is in use: %v", err)
	}
	t.Cleanup(func() { rejected.Close() })
	go func() {
		for {
			conn, err := rejected.Accept()
			if err != nil {
				return
			}
			bad.Add(1)
			conn.Close()
		}
	}()
	return port, bad
}

func TestDNSRebindingIsDenied(t *testing.T) {
	t.Parallel()
	port, bad := listenBoth(t)
	var asked atomic.Int64
	resolver := egresstest.Resolver(func(_ string, ipv6 bool) []netip.Addr {
		switch {
		case ipv6:
			return []netip.Addr{}
		case asked.Add(1) == 1:
			return []netip.Addr{good}
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	})
	d := &egress.Dialer{Policy: goodOnly(), Resolver: resolver}
	conn, err := d.DialContext(t.Context(), "tcp", "rebind.example.com:"+port)
	if err != nil {
		t.Fatal(err)
	}
	if got := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); got != good {
		t.Errorf("the connection is to %s", got)
	}
	conn.Close()
	var denied *egress.DeniedError
	if _, err := d.DialContext(t.Context(), "tcp", "rebind.example.com:"+port); !errors.As(err, &denied) {
		t.Errorf("the second resolution returned %v", err)
	}
	if n := bad.Load(); n != 0 {
		t.Errorf("there were %d connections to the denied address", n)
	}
}

func TestOfSeveralAddressesOnlyTheAllowedAreUsed(t *testing.T) {
	t.Parallel()
	port, bad := listenBoth(t)
	for _, first := range []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::ffff:127.0.0.1"), netip.MustParseAddr("::1")} {
		resolver := egresstest.Resolver(func(string, bool) []netip.Addr { return []netip.Addr{first, good} })
		d := &egress.Dialer{Policy: goodOnly(), Resolver: resolver}
		conn, err := d.DialContext(t.Context(), "tcp", "both.example.com:"+port)
		if err != nil {
			t.Fatalf("together with %s: %v", first, err)
		}
		conn.Close()
	}
	if n := bad.Load(); n != 0 {
		t.Errorf("there were %d connections to the denied address", n)
	}
}

func TestDeniedAddressesAreReported(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1", "169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "fd00:ec2::254", "0.0.0.0", "64:ff9b::7f00:1"} {
		resolver := egresstest.Resolver(func(string, bool) []netip.Addr { return []netip.Addr{netip.MustParseAddr(addr)} })
		d := &egress.Dialer{Resolver: resolver}
		_, err := d.DialContext(t.Context(), "tcp", "innocent.example.com:80")
		var denied *egress.DeniedError
		if !errors.As(err, &denied) || denied.Addr != netip.MustParseAddr(addr).Unmap() {
			t.Errorf("%s returned %v", addr, err)
		}
	}
}

func TestAllowedHostMayHaveAnyAddress(t *testing.T) {
	t.Parallel()
	port, _ := listenBoth(t)
	resolver := egresstest.Resolver(func(string, bool) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} })
	d := &egress.Dialer{Policy: egress.Policy{AllowHosts: []string{"git.example.com"}}, Resolver: resolver}
	conn, err := d.DialContext(t.Context(), "tcp", "git.example.com:"+port)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := d.DialContext(t.Context(), "tcp", "other.example.com:"+port); err == nil {
		t.Error("another name is allowed too")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.DialContext(ctx, "tcp", "git.example.com:"+port); err == nil {
		t.Error("a canceled call connected")
	}

}
