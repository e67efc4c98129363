package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
)

// meter is a proxy between an agent and its server that counts the bytes in both directions.
type meter struct {
	listener net.Listener
	server   string
	bytes    atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
}

// newMeter counts the traffic of the server at an address.
func newMeter(address string) (*meter, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &meter{listener: l, server: parsed.Host}
	go m.accept()
	return m, nil
}

// divert routes an agent through the meter.
func (m *meter) divert(agent *exec.Cmd) {
	for i, arg := range agent.Args {
		agent.Args[i] = strings.Replace(arg, m.server, m.listener.Addr().String(), 1)
	}
}

func (m *meter) accept() {
	for {
		client, err := m.listener.Accept()
		if err != nil {
			return
		}
		var dialer net.Dialer
		server, err := dialer.DialContext(context.Background(), "tcp", m.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		m.mu.Lock()
		m.conns = append(m.conns, client, server)
		m.mu.Unlock()
		go m.carry(server, client)
		go m.carry(client, server)
	}
}

// carry forwards one direction of a connection until it ends, and then ends the other one.
func (m *meter) carry(to, from net.Conn) {
	_, _ = io.Copy(to, io.TeeReader(from, m))
	_ = to.Close()
	_ = from.Close()
}

// Write implements io.Writer for data that is only counted.
func (m *meter) Write(b []byte) (int, error) {
	m.bytes.Add(int64(len(b)))
	return len(b), nil
}

func (m *meter) close() error {
	err := m.listener.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		if closed := c.Close(); closed != nil && !errors.Is(closed, net.ErrClosed) {
			err = errors.Join(err, closed)
		}
	}
	return err
}
