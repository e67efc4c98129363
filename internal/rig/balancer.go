package rig

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Balancer is a TCP load balancer: it forwards each new connection to the next backend that is reachable. Its
// methods are safe for concurrent use.
type Balancer struct {
	listener net.Listener
	turn     atomic.Uint64

	mu       sync.Mutex
	backends []string // host:port
	open     map[net.Conn]struct{}
	closed   bool
	work     sync.WaitGroup
}

// StartBalancer listens on a free port of 127.0.0.1. It refuses connections until it has backends. The caller
// closes it.
func StartBalancer() (*Balancer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the load balancer: %w", err)
	}
	b := &Balancer{listener: listener, open: map[net.Conn]struct{}{}}
	b.work.Go(b.accept)
	return b, nil
}

// Address returns the host:port for clients.
func (b *Balancer) Address() string { return b.listener.Addr().String() }

// SetBackends sets the backends for new connections, as host:port.
func (b *Balancer) SetBackends(addresses ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = addresses
}

// Close closes all connections and waits for their goroutines.
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
		_ = server.(*net.TCPConn).CloseWrite() // the other direction may continue
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close() // the end of a server ends both directions
	<-done
}

// dial connects to the next backend, or to another that is reachable; nil if there is none.
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

// keep records a connection for Close, or closes it after Close.
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
