package relay_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/tunnel"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gateway"
	"github.com/kedge-dev/kedge/server/internal/relay"
	"github.com/kedge-dev/kedge/server/internal/replicaapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var paris = fleet.Agent{ID: "agent-1", TenantID: "ten-1", Name: "paris"}

// bench is a relay with one agent, whose cluster is the handler. It has more than 20 fields because it is everything that a
// relay uses.
type bench struct {
	agentv1.UnimplementedTunnelServiceServer
	relay   *relay.Relay
	handler http.Handler // of the cluster
	client  agentv1.TunnelServiceClient
	front   *httptest.Server

	mu       sync.Mutex
	away     bool
	silent   bool // the agent is connected and opens no tunnel
	asked    int
	callers  []wire.TunnelCaller
	access   control.Access
	denied   error
	recorded []fleet.AuditEvent
	failing  error // of RecordAccess
	abort    []context.CancelFunc

	peers   *replicaapi.Client
	checks  int                   // calls of Access
	lookups int                   // calls of AgentServers
	servers []fleet.ServerReplica // of the agent
	lost    error                 // of AgentServers
	changes chan []store.Change
}

func newBench(t *testing.T, cfg relay.Config, handler http.Handler) *bench {
	t.Helper()
	b := &bench{handler: handler, changes: make(chan []store.Change), access: control.Access{
		Agent: paris, Tenant: fleet.Tenant{ID: "ten-1", Name: "acme"}, User: "kedge:person:ada", Groups: []string{"kedge:tenant:acme"},
	}}
	cfg.Log = slog.New(slog.DiscardHandler)
	b.relay = relay.New(cfg, b, b)
	srv := grpc.NewServer()
	agentv1.RegisterTunnelServiceServer(srv, b)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	b.client = agentv1.NewTunnelServiceClient(conn)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.relay.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	b.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.relay.ServeKube(w, r, relay.Caller{
			Principal: auth.Principal{Name: "ada", Request: "req-1"}, Key: r.Header.Get("Authorization"), Guard: func(func()) func() { return func() {} },
		}, "acme", "paris")
	}))
	t.Cleanup(b.front.Close)
	return b
}

// Tunnel serves a stream of the agent.
func (b *bench) Tunnel(s gateway.TunnelStream) error { return b.relay.Serve(paris, s) }

// OpenTunnels implements relay.Agents.
func (b *bench) OpenTunnels(_ fleet.AgentID, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked += n
	if !b.away && !b.silent {
		for range n {
			go b.open()
		}
	}
	return !b.away
}

// open is one tunnel of the agent.
func (b *bench) open() {
	ctx, abort := context.WithCancel(context.Background())
	defer abort()
	s, err := b.client.Tunnel(ctx)
	if err != nil {
		return
	}
	_ = s.Send(&agentv1.TunnelRequest{Frame: &agentv1.TunnelRequest_Ready{Ready: &agentv1.Ready{}}})
	first, err := s.Recv()
	if err != nil {
		return
	}
	caller, err := wire.ParseTunnelCaller(first.GetOpen())
	if err != nil {
		return
	}
	b.mu.Lock()
	b.callers = append(b.callers, caller)
	b.abort = append(b.abort, abort)
	b.mu.Unlock()
	conn := tunnel.Agent(s, abort, tunnel.Addr("server"))
	web := &http.Server{Handler: b.handler, ReadHeaderTimeout: time.Minute}
	_ = web.Serve(&oneConn{conn: conn})
	<-conn.Done()
}

// oneConn is a listener for one connection.
type oneConn struct {
	conn *tunnel.Conn
	once sync.Once
}

func (l *oneConn) Accept() (c net.Conn, err error) {
	err = io.EOF
	l.once.Do(func() { c, err = l.conn, nil })
	return c, err
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return tunnel.Addr("agent") }

// Access implements relay.Control.
func (b *bench) Access(context.Context, auth.Principal, string, string) (control.Access, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checks++
	return b.access, b.denied
}

// AgentServers implements relay.Control.
func (b *bench) AgentServers(context.Context, fleet.AgentID) ([]fleet.ServerReplica, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lookups++
	return b.servers, b.lost
}

// FollowChanges implements relay.Control.
func (b *bench) FollowChanges(ctx context.Context, fn func([]store.Change)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case changes := <-b.changes:
			fn(changes)
		}
	}
}

// RecordAccess implements relay.Control.
func (b *bench) RecordAccess(_ context.Context, events []fleet.AuditEvent) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failing == nil {
		b.recorded = append(b.recorded, events...)
	}
	return b.failing
}

func (b *bench) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *bench) do(t *testing.T, method, path string, header http.Header) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.front.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// echo responds with the request as the agent gets it.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Set-Cookie", "a=b")
	w.Header().Set("Audit-Id", "x")
	_ = json.NewEncoder(w).Encode(map[string]any{"uri": r.RequestURI, "header": r.Header})
})

func TestCredentialsOfTheCallerStayAtTheServer(t *testing.T) {
	t.Parallel()
	b := newBench(t, relay.Config{}, echo)
	const target = "/api/v1/namespaces/a/pods/b/proxy/x%2Fy//z?a=1;b=2&command=%6cs&command=-l"
	resp, body := b.do(t, http.MethodGet, target, http.Header{
		"Authorization": {"Bearer secret"}, "Cookie": {"session=secret"}, "X-Remote-User": {"secret"}, "X-Forwarded-For": {"secret"}, "Proxy-Authorization": {"secret"},
		"Connection": {"Accept, X-Remote-User"}, "Accept": {"application/json"}, "Kedge-Internal": {"secret"},
	})
	if resp.StatusCode != http.StatusOK || strings.Contains(body, "secret") {
		t.Errorf("%s: %s", resp.Status, body)
	}
	if !strings.Contains(body, strings.ReplaceAll(target, "&", `\u0026`)) {
		t.Errorf("the agent got %s", body)
	}
	if resp.Header.Get("Set-Cookie") != "" || resp.Header.Get("Audit-Id") != "x" {
		t.Errorf("the caller got %v", resp.Header)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.callers) != 1 || b.callers[0].User != "kedge:person:ada" || len(b.callers[0].Groups) != 1 || b.callers[0].Request != "req-1" {
		t.Errorf("the callers are %+v", b.callers)
	}
}

// covers: P2
func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		method, path string
		header       http.Header
		change       func(b *bench)
		code         int
		says         string
	}{
		"Impersonation":     {path: "/api/v1/pods", header: http.Header{"Impersonate-User": {"bob"}}, code: 403, says: "impersonate"},
		"OddImpersonation":  {path: "/api/v1/pods", header: http.Header{"iMPERSONATE-Extra-Scopes": {"x"}}, code: 403, says: "impersonate"},
		"OtherProtocol":     {path: "/api/v1/namespaces/a/pods/b/exec", header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}}, code: 403, says: "h2c"},
		"UpgradeOfARead":    {path: "/api/v1/pods", header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, code: 403, says: "websocket"},
		"Trace":             {method: http.MethodTrace, path: "/api/v1/pods", code: 403, says: "TRACE"},
		"DotSegments":       {path: "/api/v1/namespaces/a/%2e%2e/b/pods", code: 400, says: "segments"},
		"ReadOnlyWrite":     {method: http.MethodDelete, path: "/api/v1/namespaces/a/pods/b", change: func(b *bench) { b.access.ReadOnly = true }, code: 403, says: "read-only"},
		"ReadOnlyExecByGet": {path: "/api/v1/namespaces/a/pods/b/exec?command=sh", change: func(b *bench) { b.access.ReadOnly = true }, code: 403, says: "read-only"},
		"NoAccess":          {path: "/api/v1/pods", change: func(b *bench) { b.denied = &control.AccessError{Message: "no rule"} }, code: 403, says: "no rule"},
		"NoAgent":           {path: "/api/v1/pods", change: func(b *bench) { b.denied = fmt.Errorf("agent: %w", store.ErrNotFound) }, code: 404, says: "paris"},
		"DatabaseAway":      {path: "/api/v1/pods", change: func(b *bench) { b.denied = errors.New("connection refused") }, code: 503, says: "try again"},
		"AgentAway":         {path: "/api/v1/pods", change: func(b *bench) { b.away = true }, code: 503, says: "not connected"},
		"NotRecorded":       {method: http.MethodDelete, path: "/api/v1/namespaces/a/pods/b", change: func(b *bench) { b.failing = errors.New("full") }, code: 503, says: "did not send it"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, relay.Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request reached the cluster") }))
			if tc.change != nil {
				b.set(func() { tc.change(b) })
			}
			resp, body := b.do(t, strings.ToUpper(tc.method+map[bool]string{true: "GET"}[tc.method == ""]), tc.path, tc.header)
			var status struct {
				Kind, Message string
				Code          int
			}
			if err := json.Unmarshal([]byte(body), &status); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			if resp.StatusCode != tc.code || status.Code != tc.code || status.Kind != "Status" || !strings.Contains(status.Message, tc.says) {
				t.Errorf("%s: %s", resp.Status, body)
			}
			if resp.Header.Get("Kedge-Origin") != "kedge" {
				t.Errorf("the origin is %q", resp.Header.Get("Kedge-Origin"))
			}
		})
	}
}

func TestRefusalOfDiscoveryIsText(t *testing.T) {
	t.Parallel()
	b := newBench(t, relay.Config{}, echo)
	b.set(func() { b.away = true })
	if resp, body := b.do(t, http.MethodGet, "/api", nil); resp.StatusCode != http.StatusBadGateway || !strings.HasPrefix(body, "kedge: agent") || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("%v: %s", resp.Header, body)
	}
}

func TestOpenRequestsAreLimited(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := newBench(t, relay.Config{Limits: relay.Limits{PerCaller: 2, PerAgent: 10, PerTenant: 10, Total: 10}},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			if r.URL.Query().Has("watch") {
				<-release
			}
		}))
	defer close(release)
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.front.URL+"/api/v1/pods?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		defer resp.Body.Close() //nolint:gocritic // at the end of the test
	}
	if resp, body := b.do(t, http.MethodGet, "/api/v1/pods", nil); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%s: %s", resp.Status, body)
	}
	if resp, body := b.do(t, http.MethodGet, "/api/v1/pods", http.Header{"Authorization": {"another caller"}}); resp.StatusCode == http.StatusTooManyRequests {
		t.Errorf("%s: %s", resp.Status, body)
	}
}

// covers: P2 (a lost connection is no end of the response)
func TestLostAgentBreaksTheResponse(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := newBench(t, relay.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		<-release
	}))
	defer close(release)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.front.URL+"/api/v1/pods?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	if line, _ := body.ReadString('\n'); line != "first\n" {
		t.Fatalf("got %q", line)
	}
	b.set(func() { b.abort[0]() })
	if _, err := body.ReadString('\n'); err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the response ended with %v", err)
	}
}

func TestCallerThatGoesEndsTheRequestInTheCluster(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}), make(chan struct{})
	b := newBench(t, relay.Config{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		close(began)
		<-r.Context().Done()
		close(ended)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.front.URL+"/api/v1/pods?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-began
	cancel()
	<-ended
}

func TestLostAccessEndsOpenRequests(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}), make(chan struct{})
	b := newBench(t, relay.Config{CheckEvery: 10 * time.Millisecond}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		close(began)
		<-r.Context().Done()
		close(ended)
	}))
	go func() {
		resp, err := http.Get(b.front.URL + "/api/v1/pods?watch=1")
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}()
	<-began
	b.set(func() { b.denied = errors.New("the database is away") }) // not a decision
	b.set(func() { b.access.ReadOnly = true; b.denied = nil })
	<-ended
}

// TestTunnelsAreKeptForTheNextRequests: a request after the first does not wait for the agent.
func TestTunnelsAreKeptForTheNextRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t, relay.Config{}, echo)
	for range 5 {
		if resp, body := b.do(t, http.MethodGet, "/api/v1/pods", nil); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", resp.Status, body)
		}
	}
	b.mu.Lock()
	asked := b.asked
	b.mu.Unlock()
	if asked < 5 || asked > 5+4 {
		t.Errorf("the agent was asked for %d tunnels for 5 requests", asked)
	}
}

func TestEveryRequestIsRecorded(t *testing.T) {
	t.Parallel()
	b := newBench(t, relay.Config{}, echo)
	b.do(t, http.MethodGet, "/api/v1/namespaces/a/pods", nil)
	b.do(t, http.MethodPost, "/api/v1/namespaces/a/pods/b/exec?command=rm&command=-rf", nil)
	testkit.Eventually(t, 10*time.Second, func(context.Context) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		var texts []string
		for _, e := range b.recorded {
			if e.Actor != "ada" || e.TenantID != "ten-1" || e.Name != "paris" || e.Component != "tunnel" {
				return fmt.Errorf("recorded %+v", e)
			}
			texts = append(texts, e.Action+" "+e.Detail)
		}
		all := strings.Join(texts, "\n")
		for _, want := range []string{
			"kube.list pods a/: 200, ", "kube.create pods/exec a/b: begins, command [\"rm\" \"-rf\"]", "kube.create pods/exec a/b: 200, ",
		} {
			if !strings.Contains(all, want) {
				return fmt.Errorf("no %q in\n%s", want, all)
			}
		}
		return nil
	})
}
