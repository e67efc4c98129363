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
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/kedge-dev/kedge/internal/obs"
)

// Config configures a Server.
type Config struct {
	// Address to listen on, such as 127.0.0.1:8080.
	Address string
	// AgentAddress is an optional second address that serves agents only.
	AgentAddress string
	// CertFile and KeyFile hold the server's certificate; they are read again when they change.
	CertFile, KeyFile string
	// DataDir is where an own CA is kept when no certificate is given. It is made on first use.
	DataDir string
	// CACertFile and CAKeyFile are an own CA that was given, and is made by nobody: for servers that
	// share one.
	CACertFile, CAKeyFile string
	// Hosts are names and addresses for the own CA's server certificate, besides localhost, the
	// loopback addresses and what is listened on. Naming one asks for TLS on loopback too.
	Hosts []string
	// Plaintext allows to listen without TLS on an address that is not loopback.
	Plaintext bool
	// StopGrace bounds an orderly stop; 10 s when zero.
	StopGrace time.Duration
	Log       *slog.Logger
}

// Server listens. Make it with New and Run it.
type Server struct {
	cfg   Config
	log   *slog.Logger
	certs certificates // nil in plain text
	grpc  *grpc.Server

	agents   *handover
	ports    []*port
	sniffing openConns
	sorters  sync.WaitGroup
}

// port is one address with the HTTP server behind it.
type port struct {
	net.Listener
	web  *handover
	http *http.Server
}

// New binds the addresses and reads or makes the certificates. Until Run, clients wait. handler
// may use the Server after New has returned.
func New(cfg Config, agents *grpc.Server, handler http.Handler) (*Server, error) {
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
		// An agent behind a proxy comes by WebSocket, so HTTP is served there too, but nothing else on it.
		if err := s.bind(cfg.AgentAddress, http.NotFoundHandler()); err != nil {
			s.closeListeners()
			return nil, err
		}
	}
	s.agents = newHandover(s.Addr())
	return s, nil
}

func (s *Server) bind(address string, handler http.Handler) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", address, err)
	}
	s.ports = append(s.ports, &port{Listener: l, web: newHandover(l.Addr()), http: &http.Server{
		Handler:           s.route(handler),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}})
	return nil
}

// Addr is the address that is really listened on.
func (s *Server) Addr() net.Addr { return s.ports[0].Addr() }

// AgentAddr is where agents connect: the second address if there is one.
func (s *Server) AgentAddr() net.Addr { return s.ports[len(s.ports)-1].Addr() }

// TLS reports whether clients have to speak TLS.
func (s *Server) TLS() bool { return s.certs != nil }

// CAPEM is the certificate of the server's own CA, which clients have to be given; nil when the
// certificate was given by the operator, and in plain text.
func (s *Server) CAPEM() []byte {
	if s.certs == nil {
		return nil
	}
	return s.certs.caPEM()
}

// Run serves until ctx ends; then agents are told to go, open requests may finish, and what is
// left after the grace is cut. It returns nil after such a stop.
func (s *Server) Run(ctx context.Context) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
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
	start("agents", func() error { return s.grpc.Serve(s.agents) })

	select {
	case <-ctx.Done():
	case <-failed:
	}
	s.stop(context.WithoutCancel(ctx), cut)
	return group.Wait()
}

// wasStopped reports whether serving ended because it was told to, even before it had begun.
func wasStopped(err error) bool {
	return errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) || errors.Is(err, grpc.ErrServerStopped)
}

// stop ends in order what can be, and cuts the rest when the grace is over.
func (s *Server) stop(ctx context.Context, cut context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StopGrace)
	defer cancel()
	s.closeListeners()
	// Short requests finish in a second; streams to browsers never would.
	streams := time.AfterFunc(min(time.Second, s.cfg.StopGrace/2), cut)
	defer streams.Stop()
	var all sync.WaitGroup
	all.Go(s.grpc.GracefulStop)
	for _, p := range s.ports {
		all.Go(func() {
			if err := p.http.Shutdown(ctx); err != nil {
				_ = p.http.Close()
			}
		})
	}
	hard := context.AfterFunc(ctx, s.grpc.Stop)
	all.Wait()
	hard()
	s.agents.close()
	for _, p := range s.ports {
		p.web.close()
	}
	s.sniffing.closeAll()
	s.sorters.Wait()
}

func (s *Server) closeListeners() {
	for _, p := range s.ports {
		_ = p.Close()
	}
}

// tlsConfig says which protocols a client gets, by what it offers.
func (s *Server) tlsConfig() *tls.Config {
	base := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certs.get}
	agents, web := base.Clone(), base.Clone()
	agents.NextProtos = []string{"h2"}
	web.NextProtos = []string{"h2", "http/1.1"}
	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		mark, _ := hello.Conn.(*markedConn)
		if offersOnlyH2(hello.SupportedProtos) {
			if mark != nil {
				mark.agent = true
			}
			return agents, nil
		}
		return web, nil
	}
	return base
}

func offersOnlyH2(protos []string) bool {
	for _, p := range protos {
		if p != "h2" {
			return false
		}
	}
	return len(protos) > 0
}
