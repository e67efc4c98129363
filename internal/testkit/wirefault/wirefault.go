// Package wirefault is a network between agents and a server that stalls or breaks at a chosen point of a test.
package wirefault

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Network forwards connections to one server. It reads the HTTP/2 frames of the server and counts the data
// frames. It is safe for concurrent use.
type Network struct {
	upstream string
	listener net.Listener

	mu     sync.Mutex
	count  int // data frames since Arm
	at     int // number of the frame with the fault; 0 means none
	happen func() bool
	conns  map[net.Conn]bool
}

// New starts a network in front of upstream, a host and port. It ends with the test.
func New(tb testing.TB, upstream string) *Network {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	n := &Network{upstream: upstream, listener: l, conns: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { n.serve(context.WithoutCancel(tb.Context()), conn) })
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		n.Drop()
		serving.Wait()
	})
	return n
}

// Addr returns the host and port for agents.
func (n *Network) Addr() string { return n.listener.Addr().String() }

// Arm calls happen, once, instead of sending the given data frame, counted from now: true sends the frame
// anyway, false drops the connection. 0 disables it.
func (n *Network) Arm(frame int, happen func() bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count, n.at, n.happen = 0, frame, happen
}

// frame reports whether a data frame may be forwarded.
func (n *Network) frame() bool {
	n.mu.Lock()
	n.count++
	happen := n.happen
	if n.at == 0 || n.count != n.at {
		happen = nil
	} else {
		n.at = 0
	}
	n.mu.Unlock()
	return happen == nil || happen()
}

// Drop closes every connection.
func (n *Network) Drop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for conn := range n.conns {
		_ = conn.Close()
	}
}

func (n *Network) serve(ctx context.Context, agent net.Conn) {
	server, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", n.upstream)
	if err != nil {
		_ = agent.Close()
		return
	}
	n.mu.Lock()
	n.conns[agent], n.conns[server] = true, true
	n.mu.Unlock()
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(server, agent)
		_ = server.Close()
	})
	n.down(agent, server)
	_ = agent.Close()
	_ = server.Close()
	up.Wait()
	n.mu.Lock()
	delete(n.conns, agent)
	delete(n.conns, server)
	n.mu.Unlock()
}

// down forwards the frames of the server.
func (n *Network) down(agent io.Writer, server io.Reader) {
	const headerSize, data = 9, 0
	for {
		header := make([]byte, headerSize)
		if _, err := io.ReadFull(server, header); err != nil {
			return
		}
		frame := make([]byte, headerSize+(int(header[0])<<16|int(header[1])<<8|int(header[2])))
		copy(frame, header)
		if _, err := io.ReadFull(server, frame[headerSize:]); err != nil {
			return
		}
		if header[3] == data && !n.frame() {
			return
		}
		if _, err := agent.Write(frame); err != nil {
			return
		}
	}
}
