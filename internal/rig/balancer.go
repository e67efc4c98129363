package rig

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Balancer is what stands before several servers: it hands each new connection to the next one that
// can be reached, and knows nothing of what is said on it. Its methods are safe for concurrent use.
type Balancer struct {
	listener net.Listener
	turn     atomic.Uint64

	mu       sync.Mutex
	backends []string // host:port
	open     map[net.Conn]struct{}
	closed   bool
	work     sync.WaitGroup
}

// StartBalancer listens on a free port of 127.0.0.1. Until it has backends it refuses everybody. The
// caller closes it.
func StartBalancer() (*Balancer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the load balancer: %w", err)
	}
	b := &Balancer{listener: listener, open: map[net.Conn]struct{}{}}
	b.work.Go(b.accept)
	return b, nil
}

// Address is the host:port that clients connect to.
func (b *Balancer) Address() string { return b.listener.Addr().String() }

// SetBackends says where new connections go, as host:port.
func (b *Balancer) SetBackends(addresses ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = addresses
}

// Close ends all connections and waits until nothing is left of them.
func (b *Balancer) Close() error {
	err := b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for conn := range b.open {
		_ = conn.Close()
	}
	b.mu.Unlock()
	b.work.Wait()
	return err
}

func (b *Balancer) accept() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return // closed
		}
		b.work.Go(func() { b.serve(client) })
	}
}

func (b *Balancer) serve(client net.Conn) {
	if !b.keep(client) {
		return
	}
	defer b.drop(client)
	server := b.dial()
	if server == nil || !b.keep(server) {
		return
	}
	defer b.drop(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite() // the other direction may go on
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close() // a server that is gone ends both directions
	<-done
}

// dial reaches the backend whose turn it is, or else one that answers; nil when none does.
func (b *Balancer) dial() net.Conn {
	b.mu.Lock()
	backends := b.backends
	b.mu.Unlock()
	first := b.turn.Add(1)
	for i := range uint64(len(backends)) {
		address := backends[(first+i)%uint64(len(backends))]
		if conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", address); err == nil {
			return conn
		}
	}
	return nil
}

// keep notes a connection for Close, or closes it when that was called already.
func (b *Balancer) keep(conn net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = conn.Close()
		return false
	}
	b.open[conn] = struct{}{}
	return true
}

func (b *Balancer) drop(conn net.Conn) {
	_ = conn.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, conn)
}
