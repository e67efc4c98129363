package replicaapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/tunnel"
	"github.com/kedge-dev/kedge/internal/wire"
)

var (
	key    = bytes.Repeat([]byte("k"), 32)
	paris  = fleet.Agent{ID: "agent-1", TenantID: "ten-1", Name: "paris"}
	caller = wire.TunnelCaller{Request: "req-1", User: "kedge:person:ada", Groups: []string{"kedge:tenant:acme"}, Extra: map[string][]string{"kedge.dev/token-id": {"tok-1"}}}
)

// echoes echoes what is sent to an agent.
type echoes struct {
	agents  chan fleet.Agent
	callers chan wire.TunnelCaller
}

func (e echoes) ServeOffered(fleet.Agent, Stream) error {
	return status.Error(codes.Unimplemented, "no tunnels")
}

func (e echoes) ServeForwarded(agent fleet.Agent, c wire.TunnelCaller, stream Stream, opened func() error) error {
	if agent.ID != paris.ID {
		return status.Error(codes.NotFound, "the agent is not connected")
	}
	e.agents <- agent
	e.callers <- c
	if err := opened(); err != nil {
		return err
	}
	ctx, abort := context.WithCancel(stream.Context())
	defer abort()
	conn := tunnel.Server(stream, abort, tunnel.Addr("server"))
	if _, err := io.Copy(conn, conn); err != nil {
		return err
	}
	_ = conn.CloseWrite()
	<-ctx.Done()
	return nil
}

func newIdentity(t *testing.T, key []byte, id string) *Identity {
	t.Helper()
	i, err := NewIdentity(key, id)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// start serves the private API and returns how other servers reach it.
func start(t *testing.T, id *Identity) (fleet.ServerReplica, echoes) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := echoes{agents: make(chan fleet.Agent, 10), callers: make(chan wire.TunnelCaller, 10)}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- NewServer(l, id, e).Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return fleet.ServerReplica{ID: id.replica, Address: l.Addr().String()}, e
}

// covers: P3
func TestConnectionThroughAnotherServer(t *testing.T) {
	t.Parallel()
	to, e := start(t, newIdentity(t, key, "srv-b"))
	c := NewClient(newIdentity(t, key, "srv-a"))
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := c.Dial(ctx, to, paris, caller)
	if err != nil {
		t.Fatal(err)
	}
	cancel() // limits only the opening
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*tunnel.Conn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	_ = conn.Close()
	<-conn.(*tunnel.Conn).Done()
	if got := <-e.agents; got.ID != paris.ID || got.TenantID != paris.TenantID {
		t.Errorf("the agent is %+v", got)
	}
	if got := <-e.callers; got.User != caller.User || got.Groups[0] != caller.Groups[0] || got.Extra["kedge.dev/token-id"][0] != "tok-1" {
		t.Errorf("the caller is %+v", got)
	}
	if _, err := c.Dial(t.Context(), to, fleet.Agent{ID: "other", TenantID: "ten-1"}, caller); status.Code(err) != codes.NotFound {
		t.Errorf("an agent that is not there: %v", err)
	}
	if len(c.peers) != 1 {
		t.Errorf("there are %d connections to one server", len(c.peers))
	}
}

// covers: P3 (mutual TLS)
func TestOnlyServersOfTheSameDatabaseAreServed(t *testing.T) {
	t.Parallel()
	to, e := start(t, newIdentity(t, key, "srv-b"))
	stranger := newIdentity(t, bytes.Repeat([]byte("x"), 32), "srv-b")
	own := newIdentity(t, key, "srv-a")
	old := newIdentity(t, key, "srv-a")
	old.now = func() time.Time { return time.Now().Add(-2 * certLifetime) }
	expired, err := old.certificate()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := stranger.certificate()
	if err != nil {
		t.Fatal(err)
	}
	with := func(cert *tls.Certificate) credentials.TransportCredentials {
		cfg := own.clientTLS("srv-b")
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
		return credentials.NewTLS(cfg)
	}
	for name, creds := range map[string]credentials.TransportCredentials{
		"NoTLS":              insecure.NewCredentials(),
		"NoCertificate":      with(&tls.Certificate{}),
		"ForeignCertificate": with(foreign),
		"ExpiredCertificate": with(expired),
		"AnotherName":        credentials.NewTLS(own.clientTLS("srv-c")),
		"ForeignServer":      credentials.NewTLS(stranger.clientTLS("srv-b")),
	} {
		conn, err := grpc.NewClient(to.Address, grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		p := &peer{conn: conn}
		if _, err := p.open(t.Context(), paris, caller); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
		_ = conn.Close()
	}
	if len(e.agents) > 0 {
		t.Error("a stranger reached an agent")
	}
	c := NewClient(own)
	defer c.Close()
	conn, err := c.Dial(t.Context(), to, paris, caller)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// covers: P3 (certificates are rotated by the servers)
func TestCertificatesAreReplacedInTime(t *testing.T) {
	t.Parallel()
	var passed time.Duration
	i := newIdentity(t, key, "srv-a")
	i.now = func() time.Time { return time.Now().Add(passed) }
	first, err := i.certificate()
	if err != nil {
		t.Fatal(err)
	}
	passed = certLifetime / 3
	if same, err := i.certificate(); err != nil || same != first {
		t.Errorf("a certificate was replaced after a third of its life: %v", err)
	}
	passed = certLifetime * 2 / 3
	second, err := i.certificate()
	if err != nil || second == first {
		t.Errorf("a certificate was not replaced in time: %v", err)
	}
	if second.Leaf.NotAfter.Sub(second.Leaf.NotBefore) > certLifetime+backdate {
		t.Errorf("a certificate is valid until %s", second.Leaf.NotAfter)
	}
	if !newIdentity(t, key, "srv-b").ca.Equal(i.ca) {
		t.Error("two servers with the same key have different CAs")
	}
}

func TestMetadataIsChecked(t *testing.T) {
	t.Parallel()
	for name, pairs := range map[string][]string{
		"None":         nil,
		"NoCaller":     {agentKey, "agent-1", tenantKey, "ten-1"},
		"SystemCaller": {agentKey, "agent-1", tenantKey, "ten-1", callerKey, "\x12\x0csystem:admin"},
		"NoAgent":      {tenantKey, "ten-1", callerKey, "\x12\x07kedge:a"},
		"TwoAgents":    {agentKey, "agent-1", agentKey, "agent-2", tenantKey, "ten-1", callerKey, "\x12\x07kedge:a"},
	} {
		if _, _, err := parseMetadata(metadata.NewIncomingContext(t.Context(), metadata.Pairs(pairs...))); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	fine := metadata.Pairs(agentKey, "agent-1", tenantKey, "ten-1", callerKey, "\x12\x07kedge:a")
	if _, c, err := parseMetadata(metadata.NewIncomingContext(t.Context(), fine)); err != nil || c.User != "kedge:a" {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestFailedConnectionIsReplaced: the next request after a failure connects again, and nothing is kept of the old connection.
func TestFailedConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	c := NewClient(newIdentity(t, key, "srv-a"))
	defer c.Close()
	to := fleet.ServerReplica{ID: "srv-b", Address: address}
	if _, err := c.Dial(t.Context(), to, paris, caller); status.Code(err) != codes.Unavailable {
		t.Errorf("a server that is away: %v", err)
	}
	if len(c.peers) != 0 {
		t.Error("a failed connection is kept")
	}
	to, _ = start(t, newIdentity(t, key, "srv-b"))
	conn, err := c.Dial(t.Context(), to, paris, caller)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
