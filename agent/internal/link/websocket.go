package link

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/coder/websocket"

	"github.com/kedge-dev/kedge/internal/wire"
)

// maxMessage bounds one WebSocket message; gRPC writes far less at once.
const maxMessage = 1 << 20

// upgradeError is an HTTP response that does not accept the WebSocket.
type upgradeError struct {
	status string
	err    error
}

func (e *upgradeError) Error() string {
	return fmt.Sprintf("the server answered %s: %v", e.status, e.err)
}
func (e *upgradeError) Unwrap() error { return e.err }

// openWebSocket opens a WebSocket for the gRPC connection, for proxies that support only HTTP/1.1.
func (d *dialer) openWebSocket(ctx context.Context) (net.Conn, error) {
	transport := d.httpTransport()
	ws, resp, err := websocket.Dial(ctx, d.addr.url().String(), &websocket.DialOptions{ //nolint:bodyclose // the documentation of Dial says that it is not necessary
		HTTPClient: &http.Client{
			Transport: transport,
			// A redirect could send the token to another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Subprotocols: d.subprotocols(),
	})
	if err != nil {
		transport.CloseIdleConnections()
		if resp != nil {
			return nil, &upgradeError{status: resp.Status, err: err}
		}
		return nil, err
	}
	conn := websocket.NetConn(context.WithoutCancel(ctx), ws, websocket.MessageBinary)
	ws.SetReadLimit(maxMessage) // NetConn has removed the limit
	return webSocketConn{Conn: conn, ws: ws}, nil
}

// subprotocols tells the server which gRPC server the connection is for.
func (d *dialer) subprotocols() []string {
	if d.tunnel {
		return []string{wire.TunnelProtocol}
	}
	return nil
}

// webSocketConn closes without the closing handshake, which would wait for a peer that may be gone.
type webSocketConn struct {
	net.Conn
	ws *websocket.Conn
}

func (s webSocketConn) Close() error {
	err := s.ws.CloseNow()
	_ = s.Conn.Close() // stops the timers
	return err
}
