package server

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/kedge-dev/kedge/server/internal/relay"
	"github.com/kedge-dev/kedge/server/internal/replicaapi"
)

// private is the listener for other servers that share the database.
type private struct {
	listener net.Listener // nil when there is none
	address  string       // for the other servers; "" if they cannot reach this one
}

// openPrivate binds the address. The identity for TLS comes later.
func openPrivate(cfg Config) (private, error) {
	if cfg.PrivateListen == "" {
		return private{}, nil
	}
	l, err := net.Listen("tcp", cfg.PrivateListen)
	if err != nil {
		return private{}, fmt.Errorf("listening for other servers: %w: choose another address with --private-listen", err)
	}
	p := private{listener: l, address: cfg.PrivateAddress}
	if p.address == "" {
		p.address = l.Addr().String()
	}
	return p, nil
}

// close frees the address.
func (p private) close() {
	if p.listener != nil {
		_ = p.listener.Close()
	}
}

// checkPrivate refuses addresses that other servers cannot reach.
func (c Config) checkPrivate(shared bool) error {
	if c.PrivateListen == "" {
		if c.PrivateAddress != "" {
			return errors.New("--private-address needs --private-listen")
		}
		return nil
	}
	if !shared {
		return errors.New("--private-listen is for servers that share a PostgreSQL database: this server has a SQLite database for itself")
	}
	host, _, err := net.SplitHostPort(c.PrivateListen)
	if err != nil {
		return fmt.Errorf("--private-listen: %q is not an address such as 10.0.0.1:8443", c.PrivateListen)
	}
	if ip := net.ParseIP(host); c.PrivateAddress == "" && (host == "" || ip != nil && ip.IsUnspecified()) {
		return fmt.Errorf("--private-listen %s is on all addresses: set --private-address to the one that the other servers reach, "+
			"for example the address of the pod and the port", c.PrivateListen)
	}
	if c.PrivateAddress != "" {
		if host, port, err := net.SplitHostPort(c.PrivateAddress); err != nil || host == "" || port == "" {
			return fmt.Errorf("--private-address: %q is not an address such as 10.0.0.1:8443", c.PrivateAddress)
		}
	}
	return nil
}

// replicas carries requests between the servers that share the database.
type replicas struct {
	identity *replicaapi.Identity
	client   *replicaapi.Client // nil if the database is not shared
}

func newReplicas(shared bool, key []byte, id string) (replicas, error) {
	if !shared {
		return replicas{}, nil
	}
	identity, err := replicaapi.NewIdentity(key, id)
	if err != nil {
		return replicas{}, err
	}
	return replicas{identity: identity, client: replicaapi.NewClient(identity)}, nil
}

// peers returns the other servers, or nil.
func (r replicas) peers() relay.Peers {
	if r.client == nil {
		return nil
	}
	return r.client
}

// serve serves other servers until ctx ends.
func (r replicas) serve(p private, t replicaapi.Tunnels) func(context.Context) error {
	return func(ctx context.Context) error {
		if r.client != nil {
			defer r.client.Close()
		}
		if p.listener == nil {
			<-ctx.Done()
			return nil
		}
		return replicaapi.NewServer(p.listener, r.identity, t).Run(ctx)
	}
}
