package egress_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

func TestPolicy(t *testing.T) {
	t.Parallel()
	zero := egress.Policy{}
	local := egress.Policy{AllowLoopback: true}
	public := egress.Policy{DenyPrivate: true}
	listed := egress.Policy{
		DenyPrivate: true,
		AllowCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("169.254.1.0/24")},
		DenyCIDRs:   []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24"), netip.MustParsePrefix("203.0.113.0/24")},
	}
	named := egress.Policy{OnlyHosts: []string{"git.example.com", "*.corp.example"}}
	trusted := egress.Policy{AllowHosts: []string{"Metadata.Google.Internal."}}
	tests := []struct {
		reason string
		policy egress.Policy
		host   string
		want   bool
	}{
		{"a name", zero, "github.com", true},
		{"a public address", zero, "140.82.121.3", true},
		{"a public address of version 6", zero, "2606:50c0:8000::153", true},
		{"private networks have Git servers", zero, "10.0.0.5", true},
		{"this machine", zero, "127.0.0.1", false},
		{"all of this machine", zero, "127.8.9.10", false},
		{"this machine in version 6", zero, "::1", false},
		{"this machine if it is allowed", local, "127.0.0.1", true},
		{"and in version 6", local, "::1", true},
		{"a mapped address", zero, "::ffff:127.0.0.1", false},
		{"a mapped address in hex", zero, "::ffff:7f00:1", false},
		{"a mapped metadata service", zero, "::ffff:169.254.169.254", false},
		{"a mapped metadata service outside of link-local", zero, "::ffff:100.100.100.200", false},
		{"a mapped address in a denied range", listed, "::ffff:203.0.113.9", false},
		{"a mapped address in an allowed range", listed, "::ffff:10.1.9.9", true},
		{"an IPv4-compatible address", zero, "::127.0.0.1", false},
		{"NAT64 to a metadata service", zero, "64:ff9b::169.254.169.254", false},
		{"local-use NAT64", zero, "64:ff9b:1::1", false},
		{"NAT64 to a public address", zero, "64:ff9b::8.8.8.8", true},
		{"6to4 to this machine", zero, "2002:7f00:1::1", false},
		{"metadata", zero, "169.254.169.254", false},
		{"metadata if this machine is allowed", local, "169.254.169.254", false},
		{"metadata of Amazon in version 6", zero, "fd00:ec2::254", false},
		{"metadata of Google in version 6", zero, "fd20:ce::254", false},
		{"metadata of Alibaba", zero, "100.100.100.200", false},
		{"metadata of Azure", zero, "168.63.129.16", false},
		{"metadata of Oracle", zero, "192.0.0.192", false},
		{"metadata by name", zero, "metadata.google.internal", false},
		{"metadata by name in another spelling", zero, "METADATA.google.internal.", false},
		{"metadata by name if it is allowed", trusted, "metadata.google.internal", true},
		{"this machine by name", zero, "localhost", false},
		{"this machine by one of its names", zero, "a.localhost", false},
		{"this machine by name if it is allowed", local, "localhost", true},
		{"link-local", zero, "169.254.7.7", false},
		{"link-local in version 6", zero, "fe80::1", false},
		{"link-local with a zone", zero, "fe80::1%eth0", false},
		{"unspecified", zero, "0.0.0.0", false},
		{"unspecified in version 6", zero, "::", false},
		{"this network", zero, "0.1.2.3", false},
		{"multicast", zero, "224.0.0.1", false},
		{"multicast in version 6", zero, "ff02::1", false},
		{"broadcast", zero, "255.255.255.255", false},
		{"one number", zero, "2130706433", false},
		{"one number in hex", zero, "0x7f000001", false},
		{"octal", zero, "0177.0.0.1", false},
		{"hex parts", zero, "0x7f.0.0.1", false},
		{"two parts", zero, "127.1", false},
		{"a number at the end of a name", zero, "host.0x7f", false},
		{"a name that begins with a number", zero, "1password.com", true},
		{"private if it is denied", public, "10.0.0.5", false},
		{"private in version 6", public, "fd12::1", false},
		{"mapped private", public, "::ffff:192.168.1.1", false},
		{"shared by carriers", public, "100.64.0.1", false},
		{"public if private is denied", public, "140.82.121.3", true},
		{"in an allowed range", listed, "10.1.9.9", true},
		{"link-local in an allowed range", listed, "169.254.1.1", true},
		{"denied within it", listed, "10.1.2.3", false},
		{"denied though public", listed, "203.0.113.9", false},
		{"denied by NAT64", listed, "64:ff9b::203.0.113.9", false},
		{"one of the hosts", named, "git.example.com", true},
		{"below a host", named, "a.b.corp.example", true},
		{"a similar suffix", named, "evilcorp.example", false},
		{"the domain itself is not below it", named, "corp.example", false},
		{"another host", named, "github.com", false},
		{"another address", named, "140.82.121.3", false},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			err := tt.policy.CheckHost(tt.host)
			var denied *egress.DeniedError
			if tt.want && err != nil || !tt.want && !errors.As(err, &denied) {
				t.Errorf("%s returned %v, want it allowed: %t", tt.host, err, tt.want)
			}
		})
	}
}
