package kubeproxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/kubeproxy"
	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
	"github.com/kedge-dev/kedge/internal/wire"
)

var ada = wire.TunnelCaller{
	User: "kedge:person:ada", Groups: []string{"kedge:tenant:acme", "kedge:tenant:acme:admin"}, Extra: map[string][]string{"kedge.dev/token-id": {"tok-1"}},
}

// apiServer issues tokens of the account and responds with the headers of all other requests.
type apiServer struct {
	*httptest.Server
	noTokens atomic.Bool
	began    chan struct{}
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{began: make(chan struct{}, 1)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/serviceaccounts/kedge-tunnel/token") && s.noTokens.Load():
			http.Error(w, "no such account", http.StatusNotFound)
		case strings.HasSuffix(r.URL.Path, "/serviceaccounts/kedge-tunnel/token"):
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{
				"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
				"status": map[string]any{"token": "of-the-account", "expirationTimestamp": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
			})
		case r.URL.Query().Has("watch"):
			_ = http.NewResponseController(w).Flush()
			s.began <- struct{}{}
			<-r.Context().Done()
		default:
			_ = json.NewEncoder(w).Encode(map[string]any{"uri": r.RequestURI, "header": r.Header})
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func newProxy(t *testing.T, s *apiServer) *kubeproxy.Proxy {
	t.Helper()
	cfg := &rest.Config{Host: s.URL}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p, err := kubeproxy.New(cfg, kubeproxy.Account{Client: client, Namespace: "kedge-agent", Name: "kedge-tunnel"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return p
}

// send sends a request as the server does.
func send(t *testing.T, p *kubeproxy.Proxy, c wire.TunnelCaller, request string) (*http.Response, func()) {
	t.Helper()
	near, far := net.Pipe()
	go p.Serve(far, c)
	go func() { _, _ = io.WriteString(near, request) }()
	resp, err := http.ReadResponse(bufio.NewReader(near), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp, func() { _ = near.Close() }
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// covers: P2 (impersonation)
func TestCallerIsImpersonated(t *testing.T) {
	t.Parallel()
	p := newProxy(t, newAPIServer(t))
	resp, end := send(t, p, ada, "GET /api/v1/namespaces/a/pods/x%2Fy/proxy/z?a=1;b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer stolen\r\nCookie: a=stolen\r\nConnection: close, Impersonate-User\r\n\r\n")
	defer end()
	got := body(t, resp)
	for _, want := range []string{
		`"Authorization":["Bearer of-the-account"]`, `"Impersonate-User":["kedge:person:ada"]`, `"Impersonate-Group":["kedge:tenant:acme","kedge:tenant:acme:admin"]`,
		`"Impersonate-Extra-Kedge.dev%2ftoken-Id":["tok-1"]`, `/api/v1/namespaces/a/pods/x%2Fy/proxy/z?a=1;b`,
	} {
		if !strings.Contains(strings.ToLower(got), strings.ToLower(want)) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if strings.Contains(got, "stolen") {
		t.Errorf("a credential of the caller reached the API server: %s", got)
	}
}

func TestRequestsThatTheAgentRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		caller        wire.TunnelCaller
		request, says string
		code          int
	}{
		"NoCaller":      {wire.TunnelCaller{}, "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n", "no caller", 403},
		"Impersonation": {ada, "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nImpersonate-User: system:admin\r\n\r\n", "not allowed", 403},
		"Dots":          {ada, "GET /api/v1/namespaces/../pods HTTP/1.1\r\nHost: x\r\n\r\n", "segments", 400},
		"Upgrade":       {ada, "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", "not allowed", 403},
		"Owner":         {ada, "GET /api/v1/namespaces/a/secrets HTTP/1.1\r\nHost: x\r\n\r\n", "does not allow Secrets", 403},
	}
	p := newProxy(t, newAPIServer(t))
	no := false
	p.Restrict(ownerpolicy.Policy{Tunnel: ownerpolicy.Tunnel{Secrets: &no}})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, end := send(t, p, tc.caller, tc.request)
			defer end()
			if got := body(t, resp); resp.StatusCode != tc.code || !strings.Contains(got, tc.says) || resp.Header.Get("Kedge-Origin") != "agent" {
				t.Errorf("%s: %s", resp.Status, got)
			}
		})
	}
}

func TestNewPolicyEndsOpenRequests(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	p := newProxy(t, s)
	resp, end := send(t, p, ada, "GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
	defer end()
	<-s.began
	no := false
	p.Restrict(ownerpolicy.Policy{Tunnel: ownerpolicy.Tunnel{Enabled: &no}})
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the watch ended normally: its client would not notice")
	}
}

func TestMissingAccountIsExplained(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.noTokens.Store(true)
	resp, end := send(t, newProxy(t, s), ada, "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n")
	defer end()
	if got := body(t, resp); resp.StatusCode != http.StatusBadGateway || !strings.Contains(got, "apply the manifest of the agent again") {
		t.Errorf("%s: %s", resp.Status, got)
	}
}
