package gatewaytest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/server/internal/gateway"
	"github.com/kedge-dev/kedge/server/internal/listen"
)

// Options of a Server.
type Options struct {
	Address  string        // "127.0.0.1:0" when empty
	DataDir  string        // with it the server has TLS by an own CA
	CertFile string        // with KeyFile: a given certificate
	KeyFile  string        //
	Lease    time.Duration // 30 s when zero
	MaxAge   time.Duration // of connections
	Recheck  time.Duration // of tokens
	MaxIdle  time.Duration // of connections without a stream
	// StopGrace is how long agents have to go when the gateway stops; 5 s when zero.
	StopGrace time.Duration
	Limits    gateway.Limits
	Arrivals  int          // agents that are let in at once
	Handler   http.Handler // what else is served; nothing when nil
	Log       *slog.Logger // discards when nil
}

// Server is a running gateway behind a running listener.
type Server struct {
	Memory  *Memory // nil when it serves something else
	Metrics *prometheus.Registry

	door    *listen.Server
	gateway *gateway.Gateway
	stop    context.CancelFunc
	kill    context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex
	err     error
}

// Start serves m.
func Start(m *Memory, o Options) (*Server, error) {
	s, err := Serve(m, o)
	if err == nil {
		s.Memory = m
	}
	return s, err
}

// Serve serves whatever control room it is given.
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
	s := &Server{Metrics: prometheus.NewRegistry()}
	var err error
	s.gateway, err = gateway.New(gateway.Config{
		Lease: o.Lease, MaxAge: o.MaxAge, RecheckEvery: o.Recheck, MaxIdle: o.MaxIdle, Limits: o.Limits, Arrivals: o.Arrivals, StopGrace: o.StopGrace, Version: "test", Log: o.Log, Metrics: s.Metrics,
	}, c)
	if err != nil {
		return nil, err
	}
	cfg := listen.Config{Address: o.Address, CertFile: o.CertFile, KeyFile: o.KeyFile, StopGrace: 5 * time.Second, Log: o.Log}
	if o.DataDir != "" {
		cfg.DataDir, cfg.Hosts = o.DataDir, []string{"kedge.test"}
	}
	if s.door, err = listen.New(cfg, s.gateway.NewServer(), o.Handler); err != nil {
		return nil, err
	}
	var doorCtx, gatewayCtx context.Context
	gatewayCtx, s.stop = context.WithCancel(context.Background())
	doorCtx, s.kill = context.WithCancel(context.Background())
	s.running.Go(func() { s.note(s.gateway.Run(gatewayCtx)) })
	s.running.Go(func() { s.note(s.door.Run(doorCtx)) })
	return s, nil
}

func (s *Server) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = errors.Join(s.err, err)
}

// Addr is host:port.
func (s *Server) Addr() string { return s.door.Addr().String() }

// CAPEM is the certificate of the own CA.
func (s *Server) CAPEM() []byte { return s.door.CAPEM() }

// Stop stops in good order.
func (s *Server) Stop() error {
	s.stop()
	s.kill()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
