package listen

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// ConnectPath is the path for agents that connect with a WebSocket.
const ConnectPath = "/agent/v1/connect"

// bodyTimeout limits how long a request may take to arrive.
const bodyTimeout = 60 * time.Second

// maxMessage limits one WebSocket message. gRPC writes much smaller ones.
const maxMessage = 1 << 20

// route serves gRPC over HTTP and WebSockets, and passes all other requests to handler.
func (s *Server) route(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
			s.serverFor(r.URL.Path).ServeHTTP(w, r)
		case r.URL.Path == ConnectPath:
			s.connectWebSocket(w, r)
		default:
			// A slow body occupies a goroutine and a file descriptor. Handlers that need another limit set their
			// own.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
			handler.ServeHTTP(w, r)
		}
	})
}

// serverFor returns the gRPC server of a call that comes through the HTTP server.
func (s *Server) serverFor(path string) *grpc.Server {
	if s.grpc.Tunnel != nil && path == agentv1.TunnelService_Tunnel_FullMethodName {
		return s.grpc.Tunnel
	}
	return s.grpc.Connect
}

// connectWebSocket passes a WebSocket to the gRPC server as a connection. It returns when the connection is
// closed, because net/http closes the connection of a handler that returns.
func (s *Server) connectWebSocket(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{wire.TunnelProtocol}}) // it responds to the client if it fails
	if err != nil {
		s.log.Debug("accepting a WebSocket failed", obs.KeyAddress, r.RemoteAddr, obs.Err(err))
		return
	}
	conn := websocket.NetConn(context.WithoutCancel(r.Context()), ws, websocket.MessageBinary)
	ws.SetReadLimit(maxMessage) // NetConn removed the limit
	sock := &socket{Conn: conn, ws: ws, closed: make(chan struct{})}
	client := agentClient
	if ws.Subprotocol() == wire.TunnelProtocol {
		client = tunnelClient
	}
	if !s.listenerFor(client, nil).deliver(sock) {
		_ = sock.Close()
		return
	}
	<-sock.closed
}

// socket signals when it is closed. It closes without the closing handshake, which would wait for a peer that may
// be gone. gRPC has ended its streams before.
type socket struct {
	net.Conn
	ws     *websocket.Conn
	closed chan struct{}
	once   sync.Once
}

func (s *socket) Close() error {
	err := s.ws.CloseNow()
	s.once.Do(func() {
		_ = s.Conn.Close() // stops the timers
		close(s.closed)
	})
	return err
}
