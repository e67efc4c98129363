package egress

import "net/netip"

// metadataNames are checked by name, because a proxy may resolve them.
var metadataNames = []string{
	"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
	"metadata.azure.internal", "metadata.tencentyun.com", "metadata.platformequinix.com",
}

var (
	// metadata are services for virtual machines and pods with addresses that are not link-local.
	metadata = prefixes(
		"fd00:ec2::254/128",  // Amazon
		"fd00:ec2::23/128",   // Amazon, identities of pods
		"fd20:ce::254/128",   // Google
		"fd00:42::42/128",    // Scaleway
		"100.100.100.200/32", // Alibaba
		"168.63.129.16/32",   // Azure
		"192.0.0.192/32",     // Oracle
	)
	// reserved are addresses that no server has.
	reserved = prefixes(
		"0.0.0.0/8",      // this network; the first address is this machine
		"192.0.0.0/24",   // protocol assignments
		"240.0.0.0/4",    // and broadcast
		"::/96",          // formerly IPv4 in IPv6
		"64:ff9b:1::/48", // translation within a network
		"100::/64",       // discarded
	)
	// private are private networks in addition to those of net/netip.
	private = prefixes("100.64.0.0/10", "198.18.0.0/15", "fec0::/10")

	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
)

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// denyReason returns why the policy denies an address of this kind, or "".
func (p *Policy) denyReason(addr netip.Addr) string {
	switch {
	case addr.IsLoopback():
		if p.AllowLoopback {
			return ""
		}
		return "it is this machine"
	case contains(metadata, addr):
		return "it is a metadata service"
	case addr.IsLinkLocalUnicast():
		return "it is link-local"
	case addr.IsMulticast():
		return "it is multicast"
	case addr.IsUnspecified(), contains(reserved, addr):
		return "it is reserved"
	}
	return ""
}

// embeddedIPv4 returns the IPv4 address that a router translates an IPv6 address to.
func embeddedIPv4(addr netip.Addr) []netip.Addr {
	bytes := addr.As16()
	switch {
	case nat64.Contains(addr):
		return []netip.Addr{netip.AddrFrom4([4]byte(bytes[12:16]))}
	case sixToFour.Contains(addr):
		return []netip.Addr{netip.AddrFrom4([4]byte(bytes[2:6]))}
	}
	return nil
}
