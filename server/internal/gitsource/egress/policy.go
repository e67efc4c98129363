// Package egress decides which hosts and addresses the server connects to for its tenants, and
// connects to exactly the addresses that it has looked at. A name is resolved once per connection,
// and the address is checked between that and the connect, so that a name whose answer changes
// from one look to the next (DNS rebinding) gains nothing. It knows no protocol above TCP.
package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Policy says what may be connected to. The zero Policy refuses what is never the source of
// somebody's files: this machine, what is only on its own link, metadata services of clouds,
// multicast and reserved addresses. It allows private ranges, where many a Git server is.
//
// DenyCIDRs win over everything, AllowCIDRs and AllowHosts over the rest.
type Policy struct {
	// AllowLoopback allows this machine.
	AllowLoopback bool
	// DenyPrivate refuses the ranges of private networks, for a server whose tenants must not look
	// around in the network that it is in.
	DenyPrivate bool
	// DenyPrivateNow, when not nil, is asked at every connection and refuses private networks and this machine too: while
	// the server has more than one tenant.
	DenyPrivateNow func() bool
	// HideLoopback, when not nil, is asked whether this machine counts as a private network for what users are told of
	// failed connections.
	HideLoopback func() bool
	// PrivateCIDRs are further ranges that count as private networks.
	PrivateCIDRs []netip.Prefix
	// AllowCIDRs are addresses that may be used whatever they are.
	AllowCIDRs []netip.Prefix
	// DenyCIDRs are addresses that may not.
	DenyCIDRs []netip.Prefix
	// AllowHosts are hosts whose addresses may be used whatever they are; who answers for their
	// names in DNS is trusted. "*.example.com" stands for all names below example.com.
	AllowHosts []string
	// OnlyHosts, when there are any, are the only hosts that may be used, in the form of AllowHosts.
	OnlyHosts []string
}

// DeniedError says that the policy refuses a host.
type DeniedError struct {
	Host   string
	Addr   netip.Addr // the zero Addr when it is for the name alone
	Reason string
	// Private says that the address is refused because it is that of a private network, and Tenants that it is
	// because the server has more than one tenant.
	Private, Tenants bool
}

func (e *DeniedError) Error() string {
	if e.Addr.IsValid() {
		return fmt.Sprintf("connecting to %s at %s is not allowed: %s", e.Host, e.Addr, e.Reason)
	}
	return fmt.Sprintf("connecting to %s is not allowed: %s", e.Host, e.Reason)
}

// CheckHost says what can be said of a host before its addresses are known; of one that is an
// address, everything. Errors are of type [*DeniedError].
func (p *Policy) CheckHost(host string) error {
	name := canonical(host)
	if len(p.OnlyHosts) > 0 && !matches(p.OnlyHosts, name) {
		return &DeniedError{Host: host, Reason: "it is not one of the hosts that are allowed"}
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return p.checkAddr(host, addr)
	}
	if endsInNumber(name) {
		// 127.1, 0x7f000001, 0177.0.0.1 and 2130706433 are this machine to some resolvers.
		return &DeniedError{Host: host, Reason: "it is neither a name nor an address in its usual form"}
	}
	switch {
	case matches(p.AllowHosts, name):
		return nil
	case slices.Contains(metadataNames, name):
		return &DeniedError{Host: host, Reason: "it is a metadata service"}
	case !p.AllowLoopback && (name == "localhost" || strings.HasSuffix(name, ".localhost")):
		return &DeniedError{Host: host, Reason: "it is this machine"}
	}
	return nil
}

// checkAddr says whether an address that a host was found at may be used.
func (p *Policy) checkAddr(host string, addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	forms := append([]netip.Addr{addr}, carried(addr)...)
	for _, form := range forms {
		if contains(p.DenyCIDRs, form) {
			return &DeniedError{Host: host, Addr: addr, Reason: "it is in a range that is denied"}
		}
	}
	if contains(p.AllowCIDRs, addr) || matches(p.AllowHosts, canonical(host)) {
		return nil
	}
	for _, form := range forms {
		if reason := p.refuses(form); reason != "" {
			return &DeniedError{Host: host, Addr: addr, Reason: reason}
		}
		if p.IsPrivate(form) && p.DenyPrivate {
			return &DeniedError{Host: host, Addr: addr, Reason: "it is private", Private: true}
		}
		if (p.IsPrivate(form) || form.IsLoopback()) && p.DenyPrivateNow != nil && p.DenyPrivateNow() {
			return &DeniedError{Host: host, Addr: addr, Reason: "it is private, and the server has more than one tenant", Private: true, Tenants: true}
		}
	}
	return nil
}

// IsPrivate reports whether an address is that of a private network. This machine is none.
func (p *Policy) IsPrivate(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return contains(p.PrivateCIDRs, addr) || addr.IsPrivate() || contains(private, addr)
}

// Hides reports whether users are told nothing of why a connection to an address failed. This machine is not hidden
// where AllowCIDRs names it: the operator says that it serves repositories.
func (p *Policy) Hides(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() && !contains(p.AllowCIDRs, addr) && p.HideLoopback != nil && p.HideLoopback() {
		return true
	}
	return p.IsPrivate(addr)
}

// canonical is the one form of a host's name.
func canonical(host string) string {
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}

// endsInNumber reports whether a host that is not an address would be taken for one by those who
// read numbers generously: by its last part, as browsers decide it.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	digits, hex := strings.CutPrefix(last, "0x")
	return last != "" && !strings.ContainsFunc(digits, func(r rune) bool {
		return !(r >= '0' && r <= '9' || hex && r >= 'a' && r <= 'f')
	})
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		pattern = canonical(pattern)
		if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
			return strings.HasPrefix(suffix, ".") && strings.HasSuffix(name, suffix)
		}
		return name == pattern
	})
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}
