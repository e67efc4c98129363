package server

import (
	"strings"
	"testing"
)

func TestPrivateAddressIsReachable(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason          string
		shared          bool
		listen, address string
		err             string // part of it; "" if it is allowed
	}{
		{reason: "nothing", shared: true},
		{reason: "an address", shared: true, listen: "10.0.0.1:8443"},
		{reason: "all addresses, with the one of the pod", shared: true, listen: ":8443", address: "10.0.0.1:8443"},
		{reason: "all addresses", shared: true, listen: "0.0.0.0:8443", err: "--private-address"},
		{reason: "all addresses, without a host", shared: true, listen: ":8443", err: "--private-address"},
		{reason: "no port", shared: true, listen: "10.0.0.1", err: "--private-listen"},
		{reason: "no port for the others", shared: true, listen: ":8443", address: "10.0.0.1", err: "--private-address"},
		{reason: "no listener", shared: true, address: "10.0.0.1:8443", err: "--private-listen"},
		{reason: "nobody else has this database", listen: "10.0.0.1:8443", err: "SQLite"},
	}
	for _, tt := range tests {
		err := Config{PrivateListen: tt.listen, PrivateAddress: tt.address}.checkPrivate(tt.shared)
		if (tt.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v", tt.reason, err)
		}
	}
}
