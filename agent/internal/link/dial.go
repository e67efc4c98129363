package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
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

// dialer opens the transport of one connection. gRPC converts errors to text, so the dialer records the original one for
// [classify].
type dialer struct {
	cfg  Config
	addr address
	tls  *tls.Config // nil for plain text
	// agentVersion is for the User-Agent header.
	agentVersion string
	// tunnel is set for the connection of the tunnels.
	tunnel bool

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
		return nil, &configError{kind: KindTLS, err: fmt.Errorf("CA certificate file %s contains no PEM certificate", cfg.CAFile)}
	}
	return d, nil
}

// client returns a gRPC client. It connects when it is first used.
func (d *dialer) client(options ...grpc.DialOption) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if d.addr.scheme == "grpcs" {
		creds = recordingCredentials{TransportCredentials: credentials.NewTLS(d.tls), dialer: d}
	}
	return grpc.NewClient("passthrough:///"+d.addr.hostPort(), append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return d.dial(ctx) }),
		grpc.WithUserAgent("kedge-agent/" + d.agentVersion),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxFrame), grpc.MaxCallSendMsgSize(wire.MaxFrame)),
		// Half of the interval that the server enforces.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}),
		// The link reconnects by itself: one ClientConn is one connection.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: grpcbackoff.DefaultConfig, MinConnectTimeout: dialTimeout}),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0),
		grpc.WithReadBufferSize(4 << 10), grpc.WithWriteBufferSize(4 << 10),
	}, options...)...)
}

func (d *dialer) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := d.open(ctx)
	d.record(err)
	return conn, err
}

func (d *dialer) open(ctx context.Context) (net.Conn, error) {
	if d.addr.webSocket() {
		return d.openWebSocket(ctx)
	}
	conn, err := d.openTCP(ctx)
	if err == nil && d.tunnel && !d.addr.tls() {
		_, err = io.WriteString(conn, wire.TunnelPreface)
	}
	return conn, err
}

func (d *dialer) openTCP(ctx context.Context) (net.Conn, error) {
	proxy, err := d.proxy()
	if err != nil {
		return nil, err
	}
	if proxy != nil {
		return dialViaProxy(ctx, proxy, d.addr.hostPort())
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", d.addr.hostPort())
}

// record sets the result of the newest attempt.
func (d *dialer) record(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// lastError returns why there is no transport, or nil.
func (d *dialer) lastError() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// recordingCredentials records the results of TLS handshakes.
type recordingCredentials struct {
	credentials.TransportCredentials
	dialer *dialer
}

func (h recordingCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	h.dialer.record(err)
	return conn, info, err
}

func (h recordingCredentials) Clone() credentials.TransportCredentials {
	return recordingCredentials{TransportCredentials: h.TransportCredentials.Clone(), dialer: h.dialer}
}

func (d *dialer) httpTransport() *http.Transport {
	return &http.Transport{Proxy: d.cfg.Proxy, TLSClientConfig: d.tls, TLSHandshakeTimeout: dialTimeout}
}
