package listen

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
)

// Config configures a Server.
type Config struct {
	// Address is the address to listen on, such as 127.0.0.1:8080.
	Address string
	// AgentAddress is an optional second address that serves only agents.
	AgentAddress string
	// CertFile and KeyFile contain the server's certificate. They are reloaded when they change.
	CertFile, KeyFile string
	// DataDir is the folder of the server's own CA, which is created on first use if there is no certificate.
	DataDir string
	// CACertFile and CAKeyFile are an existing CA, for servers that share one. It is never created.
	CACertFile, CAKeyFile string
	// Hosts are names and addresses in the certificate of the own CA, in addition to localhost, the loopback
	// addresses and the listen addresses. If there is one, TLS is also used on loopback.
	Hosts []string
	// Plaintext allows an address that is not loopback without TLS.
	Plaintext bool
	// StopGrace limits a graceful stop; default 10 s.
	StopGrace time.Duration
	Log       *slog.Logger
}

// Server listens and serves. Create it with New, and call Run.
type Server struct {
	cfg   Config
	log   *slog.Logger
	certs certificates // nil without TLS
	grpc  Agents

	connects    *connListener
	tunnels     *connListener
	ports       []*port
	sniffing    openConns
	dispatching sync.WaitGroup
}

// Agents are the gRPC servers for agents. They share the ports, and agents say which one they want.
type Agents struct {
	// Connect serves all calls but tunnels.
	Connect *grpc.Server
	// Tunnel serves tunnels. It may be nil.
	Tunnel *grpc.Server
}

// each calls fn for each server.
func (a Agents) each(fn func(*grpc.Server)) {
	fn(a.Connect)
	if a.Tunnel != nil {
		fn(a.Tunnel)
	}
}

// port is one listen address with its HTTP server.
type port struct {
	net.Listener
	web  *connListener
	http *http.Server
}

// New binds the addresses and reads or creates the certificates. Clients wait until Run is called. handler may
// use the Server after New has returned.
func New(cfg Config, agents Agents, handler http.Handler) (*Server, error) {
	cfg.StopGrace = cmp.Or(cfg.StopGrace, 10*time.Second)
	certs, err := chooseCertificates(cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Log.With(obs.KeyComponent, "listen"), certs: certs, grpc: agents}
	if err := s.bind(cfg.Address, handler); err != nil {
		return nil, err
	}
	if cfg.AgentAddress != "" {
		// An agent behind a proxy uses a WebSocket, so this port serves HTTP too, but only for that.
		if err := s.bind(cfg.AgentAddress, http.NotFoundHandler()); err != nil {
			s.closeListeners()
			return nil, err
		}
	}
	s.connects, s.tunnels = newConnListener(s.Addr()), newConnListener(s.Addr())
	return s, nil
}

func (s *Server) bind(address string, handler http.Handler) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", address, err)
	}
	s.ports = append(s.ports, &port{Listener: l, web: newConnListener(l.Addr()), http: &http.Server{
		Handler:           s.route(handler),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}})
	return nil
}

// Addr returns the bound address.
func (s *Server) Addr() net.Addr { return s.ports[0].Addr() }

// AgentAddr returns the address for agents: the second one if there is one.
func (s *Server) AgentAddr() net.Addr { return s.ports[len(s.ports)-1].Addr() }

// TLS reports whether clients must use TLS.
func (s *Server) TLS() bool { return s.certs != nil }

// CAPEM returns the certificate of the server's own CA, which clients need. It returns nil if the operator
// provided a certificate, and without TLS.
func (s *Server) CAPEM() []byte {
	if s.certs == nil {
		return nil
	}
	return s.certs.caPEM()
}

// Run serves until ctx ends. Then it stops gracefully: gRPC clients receive GOAWAY, and open requests may finish.
// It closes the connections that are open after StopGrace. It returns nil after such a stop.
func (s *Server) Run(ctx context.Context) error {
	base, cancelStreams := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelStreams()
	var group errgroup.Group
	failed := make(chan struct{})
	fail := sync.OnceFunc(func() { close(failed) })
	start := func(name string, serve func() error) {
		group.Go(func() error {
			defer fail()
			if err := serve(); err != nil && !wasStopped(err) {
				return fmt.Errorf("serving %s: %w", name, err)
			}
			return nil
		})
	}
	for _, p := range s.ports {
		p.http.BaseContext = func(net.Listener) context.Context { return base }
		start(p.Addr().String(), func() error { return s.accept(ctx, p.Listener, p.web) })
		start("http", func() error { return p.http.Serve(p.web) })
	}
	start("agents", func() error { return s.grpc.Connect.Serve(s.connects) })
	if s.grpc.Tunnel != nil {
		start("tunnels", func() error { return s.grpc.Tunnel.Serve(s.tunnels) })
	}

	select {
	case <-ctx.Done():
	case <-failed:
	}
	s.stop(context.WithoutCancel(ctx), cancelStreams)
	return group.Wait()
}

// wasStopped reports whether err is the result of a stop, even of one before serving started.
func wasStopped(err error) bool {
	return errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) || errors.Is(err, grpc.ErrServerStopped)
}

// stop stops gracefully, and closes what is open when the grace period ends.
func (s *Server) stop(ctx context.Context, cancelStreams context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StopGrace)
	defer cancel()
	s.closeListeners()
	// Most requests finish within a second. Event streams never end by themselves.
	streams := time.AfterFunc(min(time.Second, s.cfg.StopGrace/2), func() {
		cancelStreams()
		if s.grpc.Tunnel != nil { // neither do unused tunnels
			s.grpc.Tunnel.Stop()
		}
	})
	defer streams.Stop()
	var all sync.WaitGroup
	s.grpc.each(func(g *grpc.Server) { all.Go(g.GracefulStop) })
	for _, p := range s.ports {
		all.Go(func() {
			if err := p.http.Shutdown(ctx); err != nil {
				_ = p.http.Close()
			}
		})
	}
	cancelForce := context.AfterFunc(ctx, func() { s.grpc.each((*grpc.Server).Stop) })
	all.Wait()
	cancelForce()
	s.connects.close()
	s.tunnels.close()
	for _, p := range s.ports {
		p.web.close()
	}
	s.sniffing.closeAll()
	s.dispatching.Wait()
}

func (s *Server) closeListeners() {
	for _, p := range s.ports {
		_ = p.Close()
	}
}

// tlsConfig selects the protocols of a client by the protocols that it offers.
func (s *Server) tlsConfig() *tls.Config {
	base := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certs.get}
	agents, web := base.Clone(), base.Clone()
	agents.NextProtos = []string{"h2"}
	web.NextProtos = []string{"h2", "http/1.1"}
	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		recorder, _ := hello.Conn.(*helloConn)
		client := clientOf(hello.SupportedProtos)
		if recorder != nil {
			recorder.client = client
		}
		if client == webClient {
			return web, nil
		}
		return agents, nil
	}
	return base
}

// client is what connects to a port.
type client int

const (
	webClient client = iota
	agentClient
	tunnelClient
)

// clientOf identifies a client by the protocols that it offers. An agent offers only h2, and for its tunnels another name
// that the server never selects.
func clientOf(protos []string) client {
	switch {
	case slices.Contains(protos, wire.TunnelProtocol):
		return tunnelClient
	case offersOnlyH2(protos):
		return agentClient
	default:
		return webClient
	}
}

func offersOnlyH2(protos []string) bool {
	for _, p := range protos {
		if p != "h2" {
			return false
		}
	}
	return len(protos) > 0
}
