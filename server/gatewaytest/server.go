package gatewaytest

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/server/internal/gateway"
	"github.com/kedge-dev/kedge/server/internal/listen"
)

// Options configures a Server. All fields are optional.
type Options struct {
	Address  string        // default "127.0.0.1:0"
	DataDir  string        // enables TLS with a CA of its own
	CertFile string        // with KeyFile: enables TLS with this certificate
	KeyFile  string        //
	Lease    time.Duration // default 30 s
	MaxAge   time.Duration // of connections
	Recheck  time.Duration // of tokens
	MaxIdle  time.Duration // of connections without a stream
	// StopGrace is how long sessions may take to end when the gateway stops; default 5 s.
	StopGrace  time.Duration
	Limits     gateway.Limits
	Handshakes int          // concurrent handshakes
	Handler    http.Handler // serves all other requests; default 404
	Log        *slog.Logger // discards by default
}

// Server is a running gateway behind a running listener.
type Server struct {
	Memory  *Memory // nil if the server serves another control
	Metrics *prometheus.Registry

	listener *listen.Server
	gateway  *gateway.Gateway
	tunnels  *tunnels
	stop     context.CancelFunc
	kill     context.CancelFunc
	running  sync.WaitGroup
	mu       sync.Mutex
	err      error
}

// Start serves m.
func Start(m *Memory, o Options) (*Server, error) {
	s, err := Serve(m, o)
	if err == nil {
		s.Memory = m
	}
	return s, err
}

// Serve serves an implementation of control.
func Serve(c gateway.Control, o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Handler == nil {
		o.Handler = http.NotFoundHandler()
	}
	if o.Address == "" {
		o.Address = "127.0.0.1:0"
	}
	s := &Server{Metrics: prometheus.NewRegistry(), tunnels: &tunnels{conns: make(chan net.Conn)}}
	var err error
	s.gateway, err = gateway.New(gateway.Config{
		Lease: o.Lease, MaxAge: o.MaxAge, RecheckEvery: o.Recheck, MaxIdle: o.MaxIdle, Limits: o.Limits, Handshakes: o.Handshakes, StopGrace: o.StopGrace, Version: "test", Log: o.Log, Metrics: s.Metrics,
	}, c)
	if err != nil {
		return nil, err
	}
	cfg := listen.Config{Address: o.Address, CertFile: o.CertFile, KeyFile: o.KeyFile, StopGrace: 5 * time.Second, Log: o.Log}
	if o.DataDir != "" {
		cfg.DataDir, cfg.Hosts = o.DataDir, []string{"kedge.test"}
	}
	if s.listener, err = listen.New(cfg, listen.Agents{Connect: s.gateway.NewServer(), Tunnel: s.gateway.NewTunnelServer(s.tunnels)}, o.Handler); err != nil {
		return nil, err
	}
	var listenerCtx, gatewayCtx context.Context
	gatewayCtx, s.stop = context.WithCancel(context.Background())
	listenerCtx, s.kill = context.WithCancel(context.Background())
	s.running.Go(func() { s.addError(s.gateway.Run(gatewayCtx)) })
	s.running.Go(func() { s.addError(s.listener.Run(listenerCtx)) })
	return s, nil
}

func (s *Server) addError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = errors.Join(s.err, err)
}

// Addr returns host:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// CAPEM returns the certificate of the server's CA.
func (s *Server) CAPEM() []byte { return s.listener.CAPEM() }

// Stop stops the server and returns its error.
func (s *Server) Stop() error {
	s.stop()
	s.kill()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
