// Package egress decides which hosts and addresses the server connects to for its tenants. It checks exactly the
// address that it connects to: it resolves a name once per connection, and checks the address between the
// resolution and the connection. So a name that resolves to different addresses over time (DNS rebinding) cannot
// bypass the policy. It knows no protocol above TCP.
package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Policy defines the allowed connections. The zero Policy denies addresses that never serve repositories: this
// machine, link-local addresses, metadata services of clouds, multicast and reserved addresses. It allows private
// networks, because many Git servers are there.
//
// DenyCIDRs has the highest precedence, then AllowCIDRs and AllowHosts, then the rest.
type Policy struct {
	// AllowLoopback allows this machine.
	AllowLoopback bool
	// DenyPrivate denies private networks, for a server whose tenants must not explore its network.
	DenyPrivate bool
	// DenyPrivateNow, if not nil, is called for every connection. While it returns true, private networks and
	// this machine are denied: the server has more than one tenant.
	DenyPrivateNow func() bool
	// HideLoopback, if not nil, is called to decide whether details of failed connections to this machine are
	// hidden from users, like those to private networks.
	HideLoopback func() bool
	// PrivateCIDRs are additional private networks.
	PrivateCIDRs []netip.Prefix
	// AllowCIDRs are always allowed, except those in DenyCIDRs.
	AllowCIDRs []netip.Prefix
	// DenyCIDRs are always denied.
	DenyCIDRs []netip.Prefix
	// AllowHosts are hosts whose addresses are always allowed, except those in DenyCIDRs. Their DNS is trusted.
	// "*.example.com" matches all names below example.com.
	AllowHosts []string
	// OnlyHosts, if not empty, are the only allowed hosts, in the form of AllowHosts.
	OnlyHosts []string
}

// DeniedError is returned when the policy denies a host.
type DeniedError struct {
	Host   string
	Addr   netip.Addr // the zero Addr if the name is denied
	Reason string
	// Private means that the address is denied because it is in a private network, and Tenants because the server
	// has more than one tenant.
	Private, Tenants bool
}

func (e *DeniedError) Error() string {
	if e.Addr.IsValid() {
		return fmt.Sprintf("connecting to %s at %s is not allowed: %s", e.Host, e.Addr, e.Reason)
	}
	return fmt.Sprintf("connecting to %s is not allowed: %s", e.Host, e.Reason)
}

// CheckHost checks a host before it is resolved. If the host is an address, the check is complete. Errors are of
// type [*DeniedError].
func (p *Policy) CheckHost(host string) error {
	name := canonicalHost(host)
	if len(p.OnlyHosts) > 0 && !matches(p.OnlyHosts, name) {
		return &DeniedError{Host: host, Reason: "it is not one of the allowed hosts"}
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return p.checkAddr(host, addr)
	}
	if endsInNumber(name) {
		// Some resolvers resolve 127.1, 0x7f000001, 0177.0.0.1 and 2130706433 to this machine.
		return &DeniedError{Host: host, Reason: "it is neither a name nor an address in the standard form"}
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

// checkAddr checks a resolved address of a host.
func (p *Policy) checkAddr(host string, addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	forms := append([]netip.Addr{addr}, embeddedIPv4(addr)...)
	for _, form := range forms {
		if contains(p.DenyCIDRs, form) {
			return &DeniedError{Host: host, Addr: addr, Reason: "it is in a denied range"}
		}
	}
	if contains(p.AllowCIDRs, addr) || matches(p.AllowHosts, canonicalHost(host)) {
		return nil
	}
	for _, form := range forms {
		if reason := p.denyReason(form); reason != "" {
			return &DeniedError{Host: host, Addr: addr, Reason: reason}
		}
		if p.IsPrivate(form) && p.DenyPrivate {
			return &DeniedError{Host: host, Addr: addr, Reason: "it is in a private network", Private: true}
		}
		if (p.IsPrivate(form) || form.IsLoopback()) && p.DenyPrivateNow != nil && p.DenyPrivateNow() {
			return &DeniedError{Host: host, Addr: addr, Reason: "it is in a private network, and the server has more than one tenant", Private: true, Tenants: true}
		}
	}
	return nil
}

// IsPrivate reports whether an address is in a private network. Loopback addresses are not.
func (p *Policy) IsPrivate(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return contains(p.PrivateCIDRs, addr) || addr.IsPrivate() || contains(private, addr)
}

// Hides reports whether details of failed connections to an address are hidden from users. Those to this machine
// are not hidden if AllowCIDRs contains it, because then the operator serves repositories there.
func (p *Policy) Hides(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() && !contains(p.AllowCIDRs, addr) && p.HideLoopback != nil && p.HideLoopback() {
		return true
	}
	return p.IsPrivate(addr)
}

// canonicalHost returns the canonical form of a host name.
func canonicalHost(host string) string {
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}

// endsInNumber reports whether some resolvers would parse a host that is not an address as one. Like browsers, it
// looks at the last label.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	digits, hex := strings.CutPrefix(last, "0x")
	return last != "" && !strings.ContainsFunc(digits, func(r rune) bool {
		return !(r >= '0' && r <= '9' || hex && r >= 'a' && r <= 'f')
	})
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		pattern = canonicalHost(pattern)
		if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
			return strings.HasPrefix(suffix, ".") && strings.HasSuffix(name, suffix)
		}
		return name == pattern
	})
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}
