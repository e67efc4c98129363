package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/internal/wire"
)

// sniffTimeout limits how long a client may take to send its first bytes.
const sniffTimeout = 10 * time.Second

// preface is the start of every HTTP/2 connection without TLS.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Pauses before retries, for example while the process has no free file descriptor.
const (
	acceptRetryMin = 10 * time.Millisecond
	acceptRetryMax = 1280 * time.Millisecond
)

// accept accepts connections until l is closed, and dispatches each in its own goroutine.
func (s *Server) accept(ctx context.Context, l net.Listener, web *connListener) error {
	var tlsConfig *tls.Config
	if s.certs != nil {
		tlsConfig = s.tlsConfig()
	}
	var backoff wait.Backoff
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			s.log.Warn("accepting a connection failed, retrying", obs.Err(err))
			wait.For(ctx, backoff.NextJittered(acceptRetryMin, acceptRetryMax))
			continue
		}
		backoff.Reset()
		s.dispatching.Go(func() { s.dispatch(ctx, conn, tlsConfig, web) })
	}
}

// dispatch passes a connection to the gRPC server or to the HTTP server.
func (s *Server) dispatch(ctx context.Context, conn net.Conn, config *tls.Config, web *connListener) {
	if !s.sniffing.add(conn) {
		_ = conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Now().Add(sniffTimeout))
	identified, client, err := identify(ctx, conn, config)
	s.sniffing.remove(conn)
	if err != nil {
		s.log.Debug("a connection ended before its first request", obs.KeyAddress, conn.RemoteAddr().String(), obs.Err(err))
		_ = conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if target := s.listenerFor(client, web); !target.deliver(identified) {
		_ = identified.Close()
	}
}

// listenerFor returns the listener of the server for a client.
func (s *Server) listenerFor(c client, web *connListener) *connListener {
	switch {
	case c == webClient:
		return web
	case c == tunnelClient && s.grpc.Tunnel != nil:
		return s.tunnels
	default:
		return s.connects
	}
}

func identify(ctx context.Context, conn net.Conn, config *tls.Config) (identified net.Conn, c client, err error) {
	if config == nil {
		return sniff(conn)
	}
	recorder := &helloConn{Conn: conn}
	secure := tls.Server(recorder, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, webClient, err
	}
	return secure, recorder.client, nil
}

// openConns are the connections that are not dispatched yet. A stop closes them.
type openConns struct {
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

func (o *openConns) add(conn net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	if o.conns == nil {
		o.conns = map[net.Conn]struct{}{}
	}
	o.conns[conn] = struct{}{}
	return true
}

func (o *openConns) remove(conn net.Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.conns, conn)
}

func (o *openConns) closeAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for conn := range o.conns {
		_ = conn.Close()
	}
}

// helloConn records which client the TLS hello belongs to.
type helloConn struct {
	net.Conn
	client client
}

// sniff reads until it can tell the HTTP/2 preface of an agent, and what an agent sends before it for its tunnels, from
// other data.
func sniff(conn net.Conn) (net.Conn, client, error) {
	buf := make([]byte, 0, len(preface))
	for {
		n, err := conn.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		read := string(buf)
		switch {
		case strings.HasPrefix(read, wire.TunnelPreface):
			return &prefixConn{Conn: conn, prefix: buf[len(wire.TunnelPreface):]}, tunnelClient, nil
		case read == preface:
			return &prefixConn{Conn: conn, prefix: buf}, agentClient, nil
		case n > 0 && !strings.HasPrefix(preface, read) && !strings.HasPrefix(wire.TunnelPreface, read):
			return &prefixConn{Conn: conn, prefix: buf}, webClient, nil
		}
		if err != nil {
			return nil, webClient, err
		}
	}
}

// prefixConn returns the bytes that sniff has read before those of the connection.
type prefixConn struct {
	net.Conn
	prefix []byte
}

func (c *prefixConn) Read(p []byte) (int, error) {
	if len(c.prefix) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.prefix)
	if c.prefix = c.prefix[n:]; len(c.prefix) == 0 {
		c.prefix = nil
	}
	return n, nil
}

// connListener is a net.Listener that accepts connections from deliver.
type connListener struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newConnListener(addr net.Addr) *connListener {
	return &connListener{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

// deliver passes a connection to Accept. It reports false when the listener is closed.
func (h *connListener) deliver(conn net.Conn) bool {
	select {
	case h.conns <- conn:
		return true
	case <-h.done:
		return false
	}
}

func (h *connListener) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *connListener) close() { h.once.Do(func() { close(h.done) }) }

func (h *connListener) Close() error {
	h.close()
	return nil
}

func (h *connListener) Addr() net.Addr { return h.addr }
