package tunnel

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

const (
	// maxData limits the bytes of one frame.
	maxData = 32 << 10
	// window limits the bytes that were sent and not read by the other end. It also limits the throughput: at a
	// round trip of 80 ms, 1 MiB allows 13 MB/s.
	window = 1 << 20
	// grantAfter is how many bytes are read before the other end gets credit for them.
	grantAfter = window / 8
	// minBuffer is the size of the buffer for small frames.
	minBuffer = 4 << 10
	// linger limits how long a closed connection waits for the other end, which may still read what was written.
	linger = 10 * time.Second
)

// Conn is one end of a connection through a tunnel. It implements net.Conn, with CloseWrite.
type Conn struct {
	stream stream
	abort  func() // ends the stream at once
	remote net.Addr
	// done is closed when the stream is not used any more.
	done chan struct{}

	sending sync.Mutex // held while a frame is sent
	writing sync.Mutex // held while data is sent that has credit

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced whenever a field below changes
	received [][]byte      // not read yet
	unread   int           // bytes in received and not granted again
	granted  int           // bytes that were read and for which no credit was sent
	credit   int64         // bytes that may be sent
	readErr  error         // after received is empty: io.EOF, or why there is no more
	writeErr error         // why nothing can be sent any more
	closed   bool
	reads    deadline
	writes   deadline
}

// Agent returns the agent's end of a stream that the server has opened. abort ends the stream.
func Agent(s grpc.BidiStreamingClient[agentv1.TunnelRequest, agentv1.TunnelResponse], abort func(), remote net.Addr) *Conn {
	return newConn(agentEnd{s}, abort, remote)
}

// Server returns the server's end of a stream that it has opened. The handler of the stream returns when Done is
// closed, or when abort was called.
func Server(s grpc.BidiStreamingServer[agentv1.TunnelRequest, agentv1.TunnelResponse], abort func(), remote net.Addr) *Conn {
	return newConn(serverEnd{s}, abort, remote)
}

func newConn(s stream, abort func(), remote net.Addr) *Conn {
	c := &Conn{stream: s, abort: abort, remote: remote, done: make(chan struct{}), changed: make(chan struct{}), credit: window}
	go c.receive()
	return c
}

// Done is closed when the connection is closed and the other end has received everything, or cannot any more.
func (c *Conn) Done() <-chan struct{} { return c.done }

// receive reads frames until the stream ends. It never waits for a reader: credit limits what it stores.
func (c *Conn) receive() {
	defer close(c.done)
	for {
		f, err := c.stream.receive()
		if err == nil {
			err = c.take(f)
		}
		if err != nil {
			c.fail(err)
			c.abort()
			return
		}
	}
}

// take handles one frame.
func (c *Conn) take(f frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case f.end:
		if c.readErr == nil {
			c.readErr = io.EOF
		}
	case f.credit != 0:
		if f.credit < 0 || f.credit > window-c.credit { // the sum could overflow
			return fmt.Errorf("%w: a credit of %d bytes", ErrFrame, f.credit)
		}
		c.credit += f.credit
	case len(f.data) == 0 || len(f.data) > maxData || c.unread+len(f.data) > window || c.readErr != nil:
		return fmt.Errorf("%w: %d bytes", ErrFrame, len(f.data))
	case c.closed: // nobody reads it
		c.unread += len(f.data)
	default:
		c.unread += len(f.data)
		c.storeLocked(f.data)
	}
	c.changeLocked()
	return nil
}

// storeLocked keeps data until it is read. Small frames share a buffer: each of its own would cost much more than its bytes.
func (c *Conn) storeLocked(data []byte) {
	if n := len(c.received); n > 0 && len(data) <= cap(c.received[n-1])-len(c.received[n-1]) {
		c.received[n-1] = append(c.received[n-1], data...)
		return
	}
	if len(data) < minBuffer {
		data = append(make([]byte, 0, minBuffer), data...)
	}
	c.received = append(c.received, data)
}

// fail ends both directions.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, io.EOF) { // the stream ended without an End: this is not the end of the data
		err = io.ErrUnexpectedEOF
	}
	if c.readErr == nil {
		c.readErr = err
	}
	if c.writeErr == nil {
		c.writeErr = err
	}
	c.changeLocked()
}

func (c *Conn) changeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	for {
		n, grant, wait, err := c.tryRead(p)
		if grant > 0 {
			_ = c.send(frame{credit: int64(grant)}) // if it fails, receive gets the reason
		}
		if wait == nil {
			return n, err
		}
		<-wait
	}
}

// tryRead returns what was received, or a channel to wait for.
func (c *Conn) tryRead(p []byte) (n, grant int, wait <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return 0, 0, nil, net.ErrClosed
	case c.reads.passed():
		return 0, 0, nil, os.ErrDeadlineExceeded
	case len(p) == 0:
		return 0, 0, nil, nil
	case len(c.received) == 0 && c.readErr != nil:
		return 0, 0, nil, c.readErr
	case len(c.received) == 0:
		return 0, 0, c.changed, nil
	}
	for len(p) > n && len(c.received) > 0 {
		m := copy(p[n:], c.received[0])
		n += m
		if c.received[0] = c.received[0][m:]; len(c.received[0]) == 0 {
			c.received[0] = nil
			c.received = c.received[1:]
		}
	}
	if c.granted += n; c.granted >= grantAfter && c.readErr == nil {
		grant, c.granted = c.granted, 0
		c.unread -= grant
	}
	return n, grant, nil, nil
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		c.writing.Lock()
		n, wait, err := c.reserve(len(p) - written)
		if err != nil || wait != nil {
			c.writing.Unlock()
		}
		if err != nil {
			return written, err
		}
		if wait != nil {
			<-wait
			continue
		}
		err = c.send(frame{data: p[written : written+n]})
		c.writing.Unlock()
		if err != nil {
			return written, c.writeError(err)
		}
		written += n
	}
	return written, nil
}

// reserve takes credit for at most n bytes, or returns a channel to wait for.
func (c *Conn) reserve(n int) (int, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return 0, nil, net.ErrClosed
	case c.writes.passed():
		return 0, nil, os.ErrDeadlineExceeded
	case c.writeErr != nil:
		return 0, nil, c.writeErr
	case c.credit == 0:
		return 0, c.changed, nil
	}
	n = int(min(int64(n), c.credit, maxData))
	c.credit -= int64(n)
	return n, nil, nil
}

func (c *Conn) send(f frame) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.stream.send(f)
}

// writeError returns why a frame could not be sent.
func (c *Conn) writeError(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	return err
}

// CloseWrite tells the other end that no more data follows. Reading continues.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return net.ErrClosed
	}
	if c.writeErr != nil {
		c.mu.Unlock()
		return nil
	}
	c.writeErr = net.ErrClosed
	c.changeLocked()
	c.mu.Unlock()
	c.writing.Lock() // after a write that has credit already
	defer c.writing.Unlock()
	return c.send(frame{end: true})
}

// Close implements net.Conn. It does not wait until the other end has received everything; see Done.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	ended := c.writeErr != nil
	c.received = nil
	c.reads.stop()
	c.writes.stop()
	c.changeLocked()
	c.mu.Unlock()
	go c.finish(ended)
	return nil
}

// finish ends the stream after the other end has received everything.
func (c *Conn) finish(ended bool) {
	timeout := time.AfterFunc(linger, c.abort) // backstop: the other end may not answer
	defer timeout.Stop()
	if !ended {
		_ = c.send(frame{end: true})
	}
	c.sending.Lock()
	c.stream.closeSend()
	c.sending.Unlock()
	if _, ok := c.stream.(serverEnd); ok {
		c.abort()
	}
	<-c.done
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return Addr("tunnel") }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.reads, t) }

// SetWriteDeadline implements net.Conn. It ends writes that wait for the other end to read. It does not interrupt a
// frame that is being sent: the other end always receives, and the keepalive of gRPC ends a lost connection.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writes, t) }

func (c *Conn) setDeadline(d *deadline, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	d.set(t, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changeLocked()
	})
	c.changeLocked()
	return nil
}

// deadline is the deadline of one direction. Conn.mu protects it.
type deadline struct {
	at    time.Time // zero for none
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) set(t time.Time, expired func()) {
	d.stop()
	if d.at = t; !t.IsZero() {
		d.timer = time.AfterFunc(time.Until(t), expired)
	}
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// Addr is the address of an end of a tunnel: a name.
type Addr string

// Network implements net.Addr.
func (a Addr) Network() string { return "tunnel" }

func (a Addr) String() string { return string(a) }
