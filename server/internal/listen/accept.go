package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/backoff"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/pause"
)

// sniffTimeout bounds how long a client may take to show what it speaks.
const sniffTimeout = 10 * time.Second

// preface is how every HTTP/2 connection without TLS begins.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// acceptBackoff paces retries, for example while the process has no free file descriptor.
var acceptBackoff = backoff.Backoff{Min: 10 * time.Millisecond, Max: 1280 * time.Millisecond}

// accept takes connections until l is closed. What a connection is gets found out beside it.
func (s *Server) accept(ctx context.Context, l net.Listener, web *handover) error {
	var tlsConfig *tls.Config
	if s.certs != nil {
		tlsConfig = s.tlsConfig()
	}
	for attempt := 0; ; {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			s.log.Warn("accepting a connection", obs.Err(err))
			pause.For(ctx, acceptBackoff.Delay(attempt))
			attempt++
			continue
		}
		attempt = 0
		s.sorters.Go(func() { s.sort(ctx, conn, tlsConfig, web) })
	}
}

// sort hands a connection to whom it is for.
func (s *Server) sort(ctx context.Context, conn net.Conn, config *tls.Config, web *handover) {
	if !s.sniffing.add(conn) {
		_ = conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Now().Add(sniffTimeout))
	sorted, agent, err := identify(ctx, conn, config)
	s.sniffing.remove(conn)
	if err != nil {
		s.log.Debug("a client did not get as far as a request", obs.KeyAddress, conn.RemoteAddr().String(), obs.Err(err))
		_ = conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{})
	to := web
	if agent {
		to = s.agents
	}
	if !to.give(sorted) {
		_ = sorted.Close()
	}
}

func identify(ctx context.Context, conn net.Conn, config *tls.Config) (sorted net.Conn, agent bool, err error) {
	if config == nil {
		return sniff(conn)
	}
	mark := &markedConn{Conn: conn}
	secure := tls.Server(mark, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, false, err
	}
	return secure, mark.agent, nil
}

// openConns are the connections of which it is not known yet what they are, so that a stop need
// not wait for them.
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

// markedConn remembers what the TLS hello gave away.
type markedConn struct {
	net.Conn
	agent bool
}

// sniff reads just far enough to tell the HTTP/2 preface from anything else.
func sniff(conn net.Conn) (net.Conn, bool, error) {
	buf := make([]byte, 0, len(preface))
	for len(buf) < len(preface) {
		n, err := conn.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if n > 0 && string(buf) != preface[:len(buf)] {
			return &prefixConn{Conn: conn, prefix: buf}, false, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
	return &prefixConn{Conn: conn, prefix: buf}, true, nil
}

// prefixConn gives back what was read to find out.
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

// handover is a net.Listener that is given its connections.
type handover struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newHandover(addr net.Addr) *handover {
	return &handover{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

// give reports whether somebody took the connection.
func (h *handover) give(conn net.Conn) bool {
	select {
	case h.conns <- conn:
		return true
	case <-h.done:
		return false
	}
}

func (h *handover) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *handover) close() { h.once.Do(func() { close(h.done) }) }

func (h *handover) Close() error {
	h.close()
	return nil
}

func (h *handover) Addr() net.Addr { return h.addr }
