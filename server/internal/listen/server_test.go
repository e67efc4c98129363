package listen_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/internal/listen"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers every frame with a Goodbye, and counts streams by transport.
type echo struct {
	agentv1.UnimplementedAgentServiceServer
	native, overHTTP atomic.Int32
}

func (e *echo) Connect(stream grpc.BidiStreamingServer[agentv1.ConnectRequest, agentv1.ConnectResponse]) error {
	if stream.Context().Value(http.ServerContextKey) == nil {
		e.native.Add(1)
	} else {
		e.overHTTP.Add(1)
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		if err := stream.Send(&agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Goodbye{Goodbye: &agentv1.Goodbye{Reason: "echo"}}}); err != nil {
			return err
		}
	}
}

type testServer struct {
	*listen.Server
	echo *echo
	stop context.CancelFunc
	done chan error
}

func open(t *testing.T, handler http.Handler, edit func(*listen.Config)) *testServer {
	t.Helper()
	cfg := listen.Config{Address: "127.0.0.1:0", StopGrace: 2 * time.Second, Log: slog.New(slog.DiscardHandler)}
	if edit != nil {
		edit(&cfg)
	}
	d := &testServer{echo: &echo{}, done: make(chan error, 1)}
	srv := grpc.NewServer()
	agentv1.RegisterAgentServiceServer(srv, d.echo)
	var err error
	if d.Server, err = listen.New(cfg, listen.Agents{Connect: srv}, handler); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	go func() { d.done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-d.done
	})
	return d
}

func hello(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello over "+r.Proto) }

func roots(t *testing.T, d *testServer) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(d.CAPEM()) {
		t.Fatal("CAPEM() contains no certificate")
	}
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	defer client.CloseIdleConnections()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// ping opens a stream, sends a frame and receives one.
func ping(t *testing.T, addr string, creds credentials.TransportCredentials) error {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := agentv1.NewAgentServiceClient(cc).Connect(ctx)
	if err != nil {
		return err
	}
	for range 2 {
		if err := stream.Send(&agentv1.ConnectRequest{}); err != nil {
			return err
		}
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
	return nil
}

func TestOnePortInPlainText(t *testing.T) {
	t.Parallel()
	d := open(t, http.HandlerFunc(hello), nil)
	if d.TLS() || d.CAPEM() != nil {
		t.Error("a loopback listener uses TLS without being configured for it")
	}
	if err := ping(t, d.Addr().String(), insecure.NewCredentials()); err != nil {
		t.Errorf("gRPC: %v", err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	if code, body := get(t, client, "http://"+d.Addr().String()+"/x"); code != 200 || body != "hello over HTTP/1.1" {
		t.Errorf("HTTP: %d %q", code, body)
	}
}

func TestOnePortWithTLS(t *testing.T) {
	t.Parallel()
	d := open(t, http.HandlerFunc(hello), func(c *listen.Config) { c.DataDir, c.Hosts = t.TempDir(), []string{"kedge.test"} })
	addr := d.Addr().String()
	if !d.TLS() {
		t.Fatal("no TLS although a host is configured")
	}
	if err := ping(t, addr, credentials.NewTLS(roots(t, d))); err != nil {
		t.Errorf("gRPC that offers only h2: %v", err)
	}
	both := roots(t, d)
	both.NextProtos = []string{"h2", "http/1.1"}
	if err := ping(t, addr, credentials.NewTLS(both)); err != nil {
		t.Errorf("gRPC that offers http/1.1 too, as an ingress would: %v", err)
	}
	if native, overHTTP := d.echo.native.Load(), d.echo.overHTTP.Load(); native != 1 || overHTTP != 1 {
		t.Errorf("%d native streams and %d over HTTP, want one each", native, overHTTP)
	}
	for _, tt := range []struct {
		h2   bool
		want string
	}{{true, "hello over HTTP/2.0"}, {false, "hello over HTTP/1.1"}} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: roots(t, d), ForceAttemptHTTP2: tt.h2}}
		if code, body := get(t, client, "https://"+addr+"/x"); code != 200 || body != tt.want {
			t.Errorf("HTTP: %d %q, want %q", code, body, tt.want)
		}
	}
	if err := ping(t, addr, insecure.NewCredentials()); err == nil {
		t.Error("plain text was served on a TLS port")
	}
}

func TestSilentClientsDelayNoOther(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		d := open(t, http.HandlerFunc(hello), func(c *listen.Config) {
			if secure {
				c.DataDir, c.Hosts = t.TempDir(), []string{"kedge.test"}
			}
		})
		for i := range 50 {
			conn, err := net.Dial("tcp", d.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if i%2 == 0 { // half of them start like an agent and then stop
				_, _ = io.WriteString(conn, "PRI * HT")
			}
		}
		creds := insecure.NewCredentials()
		if secure {
			creds = credentials.NewTLS(roots(t, d))
		}
		if err := ping(t, d.Addr().String(), creds); err != nil {
			t.Errorf("gRPC with silent clients (TLS %v): %v", secure, err)
		}
		began := time.Now()
		d.stop()
		if err := <-d.done; err != nil {
			t.Errorf("Run() = %v", err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("stopping took %s: it waited for silent clients", took)
		}
		d.done <- nil
	}
}

func TestRequestMayArriveByteByByte(t *testing.T) {
	t.Parallel()
	d := open(t, http.HandlerFunc(hello), nil)
	conn, err := net.Dial("tcp", d.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, b := range []byte("PUT /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n") {
		if _, err := conn.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(answer), "hello over HTTP/1.1") {
		t.Errorf("response = %q, %v: PUT begins like PRI but is another request", answer, err)
	}
}

func TestLargeHeadersAreRejected(t *testing.T) {
	t.Parallel()
	d := open(t, http.HandlerFunc(hello), nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Large", strings.Repeat("x", 200<<10))
	resp, err := (&http.Transport{}).RoundTrip(req)
	if err != nil {
		return // a closed connection is also correct
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status = %d, want 431", resp.StatusCode)
	}
}

func TestAgentPortServesOnlyAgents(t *testing.T) {
	t.Parallel()
	d := open(t, http.HandlerFunc(hello), func(c *listen.Config) { c.AgentAddress = "127.0.0.1:0" })
	if d.AgentAddr().String() == d.Addr().String() {
		t.Fatal("both addresses are the same")
	}
	if err := ping(t, d.AgentAddr().String(), insecure.NewCredentials()); err != nil {
		t.Errorf("gRPC on the agent port: %v", err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	if code, _ := get(t, client, "http://"+d.AgentAddr().String()+"/api/v1"); code != http.StatusNotFound {
		t.Errorf("the API on the agent port returns %d, want 404", code)
	}
	if code, _ := get(t, client, "http://"+d.AgentAddr().String()+listen.ConnectPath); code != http.StatusUpgradeRequired {
		t.Errorf("the WebSocket path on the agent port returns %d, want 426", code)
	}
}

func TestStopEndsOpenStreams(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 2)
	endless := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		entered <- struct{}{}
		<-r.Context().Done() // an event stream
	})
	d := open(t, endless, nil)
	resp, err := (&http.Client{Transport: &http.Transport{}}).Get("http://" + d.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-entered
	cc, err := grpc.NewClient("passthrough:///"+d.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	stream, err := agentv1.NewAgentServiceClient(cc).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&agentv1.ConnectRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	d.stop()
	if err := <-d.done; err != nil {
		t.Errorf("Run() = %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("stopping took %s, want about the grace period of 2 s", took)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the open stream ended with %v, want Unavailable", err)
	}
	d.done <- nil
}

func TestAddressInUseIsAnError(t *testing.T) {
	t.Parallel()
	d := open(t, http.HandlerFunc(hello), nil)
	_, err := listen.New(listen.Config{Address: d.Addr().String(), Log: slog.New(slog.DiscardHandler)}, listen.Agents{Connect: grpc.NewServer()}, http.NotFoundHandler())
	var op *net.OpError
	if !errors.As(err, &op) {
		t.Errorf("New() with an address in use = %v, want the error of the network", err)
	}
}
