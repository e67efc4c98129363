package listen

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/kedge-dev/kedge/internal/obs"
)

// ConnectPath is where agents connect by WebSocket.
const ConnectPath = "/agent/v1/connect"

// bodyTimeout bounds how long a request may take to arrive.
const bodyTimeout = 60 * time.Second

// maxMessage bounds one WebSocket message; gRPC writes far less at once.
const maxMessage = 1 << 20

// route serves agents that come over HTTP and passes everything else on.
func (s *Server) route(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
			s.grpc.ServeHTTP(w, r)
		case r.URL.Path == ConnectPath:
			s.connectWebSocket(w, r)
		default:
			// A body that trickles in holds a goroutine and a descriptor. Handlers that need longer, or
			// less, set their own.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
			handler.ServeHTTP(w, r)
		}
	})
}

// connectWebSocket hands a WebSocket to the gRPC server as one more connection and stays until it
// is closed: net/http tidies up after a handler that returns.
func (s *Server) connectWebSocket(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, nil) // answers the client itself when it fails
	if err != nil {
		s.log.Debug("accepting a WebSocket", obs.KeyAddress, r.RemoteAddr, obs.Err(err))
		return
	}
	conn := websocket.NetConn(context.WithoutCancel(r.Context()), ws, websocket.MessageBinary)
	ws.SetReadLimit(maxMessage) // NetConn has lifted it
	sock := &socket{Conn: conn, ws: ws, closed: make(chan struct{})}
	if !s.agents.give(sock) {
		_ = sock.Close()
		return
	}
	<-sock.closed
}

// socket tells when it is closed, and closes at once: the closing handshake would wait for a peer
// that may be gone, and gRPC has said its goodbye already.
type socket struct {
	net.Conn
	ws     *websocket.Conn
	closed chan struct{}
	once   sync.Once
}

func (s *socket) Close() error {
	err := s.ws.CloseNow()
	s.once.Do(func() {
		_ = s.Conn.Close() // stops the timers; the connection is closed
		close(s.closed)
	})
	return err
}
