package link_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/link"
)

// tcpProxy forwards TCP connections to a server. It can be disconnected, which closes the connections without a Goodbye.
type tcpProxy struct {
	listener net.Listener
	server   string

	mu    sync.Mutex
	down  bool
	conns []net.Conn
	all   sync.WaitGroup
}

func newTCPProxy(t *testing.T, server string) *tcpProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &tcpProxy{listener: l, server: server}
	c.all.Go(c.run)
	t.Cleanup(func() {
		_ = l.Close()
		c.disconnect()
		c.all.Wait()
	})
	return c
}

func (c *tcpProxy) addr() string { return c.listener.Addr().String() }

func (c *tcpProxy) run() {
	for {
		in, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		server := c.server
		c.mu.Unlock()
		out, err := net.Dial("tcp", server)
		if err != nil || !c.add(in, out) {
			_ = in.Close()
			if out != nil {
				_ = out.Close()
			}
			continue
		}
		c.all.Go(func() { pipe(in, out) })
		c.all.Go(func() { pipe(out, in) })
	}
}

func (c *tcpProxy) add(conns ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return false
	}
	c.conns = append(c.conns, conns...)
	return true
}

func (c *tcpProxy) disconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

func (c *tcpProxy) setServer(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = server
}

func (c *tcpProxy) reconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = false
}

func pipe(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	_ = from.Close()
	_ = to.Close()
}

// problemLog is a log handler that signals when a client has no connection.
type problemLog struct {
	slog.Handler
	seen chan struct{}
}

func newProblemLog() *problemLog {
	return &problemLog{Handler: slog.DiscardHandler, seen: make(chan struct{}, 1)}
}

func (p *problemLog) Enabled(context.Context, slog.Level) bool { return true }
func (p *problemLog) WithAttrs([]slog.Attr) slog.Handler       { return p }
func (p *problemLog) WithGroup(string) slog.Handler            { return p }

func (p *problemLog) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "no connection") {
		select {
		case p.seen <- struct{}{}:
		default:
		}
	}
	return nil
}

// await waits for the next problem, which is recorded before it is logged.
func (p *problemLog) await(t *testing.T, ctx context.Context) {
	t.Helper()
	select {
	case <-p.seen:
	case <-ctx.Done():
		t.Fatal("no problem was reported")
	}
}

func assertProblem(t *testing.T, r *testClient, kind link.Kind, words ...string) {
	t.Helper()
	err := r.Ready(t.Context())
	var problem *link.Problem
	if !errors.As(err, &problem) {
		t.Fatalf("Ready() = %v, want a problem", err)
	}
	if problem.Kind != kind {
		t.Errorf("kind = %s, want %s, of: %v", problem.Kind, kind, problem)
	}
	for _, w := range words {
		if !strings.Contains(problem.Error(), w) {
			t.Errorf("message %q does not contain %q", problem.Error(), w)
		}
	}
}

func slogTo(p *problemLog) *slog.Logger { return slog.New(p) }
