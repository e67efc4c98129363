package e2e_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// wireFault is a network between agents and a server that stalls or breaks at a chosen frame. It reads the HTTP/2
// frames that the server sends and counts those with data.
type wireFault struct {
	upstream string
	listener net.Listener

	mu    sync.Mutex
	count int // data frames since arm
	at    int // the one at which something happens; 0 is none
	// happen is called instead of sending that frame; false drops the connection.
	happen func() bool
	conns  map[net.Conn]bool
}

func newWireFault(tb testing.TB, upstream string) *wireFault {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	f := &wireFault{upstream: upstream, listener: l, conns: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { f.serve(context.WithoutCancel(tb.Context()), conn) })
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		f.dropAll()
		serving.Wait()
	})
	return f
}

func (f *wireFault) addr() string { return f.listener.Addr().String() }

// arm has something happen at the n-th data frame from now on, once.
func (f *wireFault) arm(n int, happen func() bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count, f.at, f.happen = 0, n, happen
}

// frame reports whether a data frame may be sent on.
func (f *wireFault) frame() bool {
	f.mu.Lock()
	f.count++
	happen := f.happen
	if f.at == 0 || f.count != f.at {
		happen = nil
	} else {
		f.at = 0
	}
	f.mu.Unlock()
	return happen == nil || happen()
}

func (f *wireFault) dropAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.conns {
		_ = conn.Close()
	}
}

func (f *wireFault) serve(ctx context.Context, agent net.Conn) {
	server, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", f.upstream)
	if err != nil {
		_ = agent.Close()
		return
	}
	f.mu.Lock()
	f.conns[agent], f.conns[server] = true, true
	f.mu.Unlock()
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(server, agent)
		_ = server.Close()
	})
	f.down(agent, server)
	_ = agent.Close()
	_ = server.Close()
	up.Wait()
	f.mu.Lock()
	delete(f.conns, agent)
	delete(f.conns, server)
	f.mu.Unlock()
}

// down passes on what the server sends, frame by frame.
func (f *wireFault) down(agent io.Writer, server io.Reader) {
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
		if header[3] == data && !f.frame() {
			return
		}
		if _, err := agent.Write(frame); err != nil {
			return
		}
	}
}
