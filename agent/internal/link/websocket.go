package link

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/coder/websocket"
)

// maxMessage bounds one WebSocket message; gRPC writes far less at once.
const maxMessage = 1 << 20

// upgradeError is an HTTP answer where a WebSocket was expected.
type upgradeError struct {
	status string
	err    error
}

func (e *upgradeError) Error() string {
	return fmt.Sprintf("the server answered %s: %v", e.status, e.err)
}
func (e *upgradeError) Unwrap() error { return e.err }

// openWebSocket carries the same gRPC connection where a proxy speaks only HTTP/1.1.
func (d *dialer) openWebSocket(ctx context.Context) (net.Conn, error) {
	transport := d.httpTransport()
	ws, resp, err := websocket.Dial(ctx, d.addr.url().String(), &websocket.DialOptions{ //nolint:bodyclose // Dial says that it need not be
		HTTPClient: &http.Client{
			Transport: transport,
			// A redirect could lead the token to another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
	if err != nil {
		transport.CloseIdleConnections()
		if resp != nil {
			return nil, &upgradeError{status: resp.Status, err: err}
		}
		return nil, err
	}
	conn := websocket.NetConn(context.WithoutCancel(ctx), ws, websocket.MessageBinary)
	ws.SetReadLimit(maxMessage) // NetConn has lifted it
	return socket{Conn: conn, ws: ws}, nil
}

// socket closes at once: the closing handshake would wait for a peer that may be gone, and gRPC
// has said its goodbye already.
type socket struct {
	net.Conn
	ws *websocket.Conn
}

func (s socket) Close() error {
	err := s.ws.CloseNow()
	_ = s.Conn.Close() // stops the timers; the connection is closed
	return err
}
