package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/tunnel"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// Tunnels serves the connections of callers that come through tunnels. It counts the tunnels of all clients that share it:
// they continue when the connection to the server is made again.
type Tunnels struct {
	serve func(conn net.Conn, c wire.TunnelCaller)

	mu   sync.Mutex
	open int
}

// NewTunnels returns tunnels whose connections serve serves. It is called in a goroutine of its own for each connection, and
// returns when the connection is closed.
func NewTunnels(serve func(conn net.Conn, c wire.TunnelCaller)) *Tunnels {
	return &Tunnels{serve: serve}
}

// take counts one more tunnel. It reports false if there are too many.
func (t *Tunnels) take() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open >= wire.MaxTunnels {
		return false
	}
	t.open++
	return true
}

func (t *Tunnels) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open--
}

// secondConnection is the connection for tunnels of a connection. Only the reader uses it.
type secondConnection struct {
	conn         *tunnelConn // nil until the server has asked for a tunnel
	agentVersion string
}

// tunnelConn is the connection for tunnels. It connects with its first tunnel and disconnects when it has had none for a
// while. It is closed when it is retired and its last tunnel has ended.
type tunnelConn struct {
	conn   *grpc.ClientConn
	client agentv1.TunnelServiceClient

	warned sync.Once // one warning is enough: the server asks again and again

	mu      sync.Mutex
	open    int
	retired bool
}

// tunnelIdle is how long the connection stays open without a tunnel.
const tunnelIdle = time.Minute

func (n *connection) newTunnelConn() (*tunnelConn, error) {
	d, err := newDialer(n.cfg, n.addr, n.tunnel.agentVersion)
	if err != nil {
		return nil, err
	}
	d.tunnel = true
	if d.tls != nil && !d.addr.webSocket() {
		d.tls.NextProtos = []string{"h2", wire.TunnelProtocol}
	}
	// No fixed windows: they grow with the transfer. Larger buffers than those of the control connection.
	conn, err := d.client(grpc.WithIdleTimeout(tunnelIdle), grpc.WithReadBufferSize(32<<10), grpc.WithWriteBufferSize(32<<10))
	if err != nil {
		return nil, fmt.Errorf("creating the gRPC client for tunnels: %w", err)
	}
	return &tunnelConn{conn: conn, client: agentv1.NewTunnelServiceClient(conn)}, nil
}

// retire closes the connection when it is not used any more.
func (t *tunnelConn) retire() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retired = true
	if t.open == 0 {
		_ = t.conn.Close()
	}
}

func (t *tunnelConn) add() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open++
}

func (t *tunnelConn) remove() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open--; t.open == 0 && t.retired {
		_ = t.conn.Close()
	}
}

// openTunnels opens tunnels that a server asked for. The server uses them when it has a request.
func (n *connection) openTunnels(count int, server string) {
	if n.cfg.Tunnels == nil {
		return
	}
	if n.tunnel.conn == nil {
		t, err := n.newTunnelConn()
		if err != nil {
			n.log.Warn("no connection for tunnels", obs.Err(err))
			return
		}
		n.tunnel.conn = t
	}
	for range min(count, wire.MaxTunnels) {
		if !n.cfg.Tunnels.take() {
			return
		}
		n.tunnel.conn.add()
		go n.serveTunnel(n.tunnel.conn, server)
	}
}

// serveTunnel opens one tunnel and serves the connection that the server makes through it. It outlives the connection n.
func (n *connection) serveTunnel(t *tunnelConn, server string) {
	defer n.cfg.Tunnels.release()
	defer t.remove()
	ctx, abort := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+n.token))
	defer abort()
	stream, err := t.client.Tunnel(ctx)
	if err == nil {
		err = stream.Send(&agentv1.TunnelRequest{Frame: &agentv1.TunnelRequest_Ready{Ready: &agentv1.Ready{Server: server}}})
	}
	var first *agentv1.TunnelResponse
	if err == nil {
		first, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) { // it was not needed
		return
	}
	if err != nil {
		t.warned.Do(func() { n.log.Warn("a tunnel could not be opened", obs.Err(err)) })
		return
	}
	caller, err := wire.ParseTunnelCaller(first.GetOpen())
	if err != nil {
		n.log.Warn("a tunnel was refused", obs.Err(err))
		return
	}
	conn := tunnel.Agent(stream, abort, tunnel.Addr("server"))
	n.cfg.Tunnels.serve(conn, caller)
	_ = conn.Close()
	<-conn.Done()
}
