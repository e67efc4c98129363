package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/kedge-dev/kedge/internal/wire"
)

const dialTimeout = 20 * time.Second

// dialer opens the transport of one connection. gRPC flattens errors into text, so the dialer
// remembers the real one for [classify].
type dialer struct {
	cfg  Config
	addr address
	tls  *tls.Config // nil for plain text
	// agentVersion is told to whatever stands in between.
	agentVersion string

	mu  sync.Mutex
	err error
}

func newDialer(cfg Config, addr address, agentVersion string) (*dialer, error) {
	d := &dialer{cfg: cfg, addr: addr, agentVersion: agentVersion}
	if !addr.tls() {
		return d, nil
	}
	d.tls = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: addr.host}
	if cfg.CAFile == "" {
		return d, nil
	}
	pem, err := os.ReadFile(cfg.CAFile)
	if err != nil {
		return nil, &configError{kind: KindTLS, err: fmt.Errorf("reading the CA certificate: %w", err)}
	}
	d.tls.RootCAs = x509.NewCertPool()
	if !d.tls.RootCAs.AppendCertsFromPEM(pem) {
		return nil, &configError{kind: KindTLS, err: fmt.Errorf("CA certificate file %s holds no PEM certificate", cfg.CAFile)}
	}
	return d, nil
}

// client makes the gRPC client; it connects when it is first used.
func (d *dialer) client() (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if d.addr.scheme == "grpcs" {
		creds = handshakes{TransportCredentials: credentials.NewTLS(d.tls), dialer: d}
	}
	return grpc.NewClient("passthrough:///"+d.addr.hostPort(),
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return d.dial(ctx) }),
		grpc.WithUserAgent("kedge-agent/"+d.agentVersion),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxFrame), grpc.MaxCallSendMsgSize(wire.MaxFrame)),
		// Half of the server's patience: a dead server is noticed, a living one is not bothered.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}),
		// Reconnecting is the client's own business: one ClientConn is one connection.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: grpcbackoff.DefaultConfig, MinConnectTimeout: dialTimeout}),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0),
		grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10),
	)
}

func (d *dialer) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := d.open(ctx)
	d.remember(err)
	return conn, err
}

func (d *dialer) open(ctx context.Context) (net.Conn, error) {
	if d.addr.webSocket() {
		return d.openWebSocket(ctx)
	}
	proxy, err := d.proxy()
	if err != nil {
		return nil, err
	}
	if proxy != nil {
		return dialThrough(ctx, proxy, d.addr.hostPort())
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", d.addr.hostPort())
}

// remember keeps the newest failure; a success clears it.
func (d *dialer) remember(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// failure is why there is no transport, or nil when there was one.
func (d *dialer) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// handshakes remembers how TLS handshakes end.
type handshakes struct {
	credentials.TransportCredentials
	dialer *dialer
}

func (h handshakes) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	h.dialer.remember(err)
	return conn, info, err
}

func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{TransportCredentials: h.TransportCredentials.Clone(), dialer: h.dialer}
}

func (d *dialer) httpTransport() *http.Transport {
	return &http.Transport{Proxy: d.cfg.Proxy, TLSClientConfig: d.tls, TLSHandshakeTimeout: dialTimeout}
}
