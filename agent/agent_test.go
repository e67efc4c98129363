package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/agent"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// kubeconfig returns the kubeconfig of an API server that serves the few requests of an agent that connects.
func kubeconfig(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(path, body string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		})
	}
	answer("/api/v1/namespaces/kedge-agent", `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"kedge-agent"}}`)
	answer("/version", `{"gitVersion": "v1.36.3"}`)
	answer("/api/v1/namespaces/kube-system", `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"kube-system","uid":"the-uid"}}`)
	answer("/apis/coordination.k8s.io/v1/namespaces/kedge-agent/leases", `{"apiVersion":"coordination.k8s.io/v1","kind":"LeaseList","metadata":{"resourceVersion":"1"},"items":[]}`)
	for _, method := range []string{"POST /apis/coordination.k8s.io/v1/namespaces/kedge-agent/leases", "PUT /apis/coordination.k8s.io/v1/namespaces/kedge-agent/leases/kedge-agent"} {
		mux.HandleFunc(method, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.Copy(w, r.Body)
		})
	}
	answer("/api/v1/namespaces/kedge-agent/configmaps", `{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"resourceVersion":"1"},"items":[]}`)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return write(t, "kubeconfig", fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: %q}}]
users: [{name: test, user: {}}]
`, srv.URL))
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// covers: C3, C10, O1
func TestRunConnectsWithAddressTokenAndCA(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	enrolled, token := m.Enroll("edge-1")
	srv, err := gatewaytest.Start(m, gatewaytest.Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Stop() })
	health := freePort(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, agent.Config{
			ServerAddress: "grpcs://" + srv.Addr(), TokenFile: write(t, "token", token), CAFile: write(t, "ca.pem", string(srv.CAPEM())),
			Kubeconfig: kubeconfig(t), Listen: health, Namespace: "kedge-agent", Replica: "pod-0", Log: slog.New(slog.DiscardHandler),
		})
	}()
	if err := m.AwaitOpen(ctx, 1); err != nil {
		t.Fatal(err)
	}
	c := m.Connections()[0]
	if c.AgentID != enrolled.ID || c.Replica != "pod-0" || c.KubeVersion != "v1.36.3" || c.ClusterUID != "the-uid" || c.Version == "" {
		t.Errorf("connection = %+v, want the data of the agent and its cluster", c)
	}
	await(ctx, t, "http://"+health+"/readyz", http.StatusOK, "ok")
	await(ctx, t, "http://"+health+"/metrics", http.StatusOK, "kedge_agent_connected 1")
	await(ctx, t, "http://"+health+"/metrics", http.StatusOK, "kedge_agent_leads 1")
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v after an orderly stop, want nil", err)
	}
}

// covers: C11, O1, O2
func TestRefusedTokenIsReportedAtReadyzAndInTheLog(t *testing.T) {
	t.Parallel()
	srv, err := gatewaytest.Start(gatewaytest.NewMemory(), gatewaytest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Stop() })
	health := freePort(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lines, log := io.Pipe()
	logger, err := obs.NewLogger(log, obs.FormatJSON)
	if err != nil {
		t.Fatal(err)
	}
	found := make(chan map[string]any, 1)
	go func() {
		for dec := json.NewDecoder(lines); ; {
			var line map[string]any
			if dec.Decode(&line) != nil {
				return
			}
			if line["kind"] == "token" {
				select {
				case found <- line:
				default:
				}
			}
		}
	}()
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, agent.Config{
			ServerAddress: "grpc://" + srv.Addr(), TokenFile: write(t, "token", "kedge-agent-wrong"), Kubeconfig: kubeconfig(t),
			Listen: health, Namespace: "kedge-agent", Replica: "pod-0", Log: logger,
		})
	}()
	line := <-found
	if text, _ := line["error"].(string); !strings.Contains(text, "the server refused the token") || strings.Contains(fmt.Sprint(line), "kedge-agent-wrong") {
		t.Errorf("log line %v, want the reason and not the token", line)
	}
	await(ctx, t, "http://"+health+"/readyz", http.StatusServiceUnavailable, "the server refused the token")
	await(ctx, t, "http://"+health+"/livez", http.StatusOK, "ok")
	select {
	case err := <-done:
		t.Errorf("Run() = %v: the agent stopped", err)
	default:
	}
	cancel()
	<-done
	_ = log.Close()
}

// covers: C11, O1
func TestMissingNamespaceIsReportedAtReadyz(t *testing.T) {
	t.Parallel()
	health := freePort(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, agent.Config{
			ServerAddress: "grpc://127.0.0.1:1", TokenFile: write(t, "token", "x"), Kubeconfig: kubeconfig(t),
			Listen: health, Namespace: "elsewhere", Replica: "pod-0", Log: slog.New(slog.DiscardHandler),
		})
	}()
	await(ctx, t, "http://"+health+"/readyz", http.StatusServiceUnavailable, `namespace "elsewhere", where this agent stores its inventory, does not exist`)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v after an orderly stop, want nil", err)
	}
}

// covers: C11
func TestWrongConfigurationIsAConfigError(t *testing.T) {
	t.Parallel()
	good := agent.Config{
		ServerAddress: "grpc://127.0.0.1:1", TokenFile: write(t, "token", "x"), Kubeconfig: kubeconfig(t),
		Namespace: "kedge-agent", Replica: "pod-0", Log: slog.New(slog.DiscardHandler),
	}
	tests := []struct {
		name string
		edit func(*agent.Config)
		want string
	}{
		{"no address", func(c *agent.Config) { c.ServerAddress = "" }, "--server-address"},
		{"bad address", func(c *agent.Config) { c.ServerAddress = "https://x" }, "grpcs://"},
		{"address without a scheme", func(c *agent.Config) { c.ServerAddress = "127.0.0.1:18080" }, `--server-address "127.0.0.1:18080" must begin with grpc://, grpcs://, ws:// or wss://`},
		{"no token file", func(c *agent.Config) { c.TokenFile = "" }, "--token-file"},
		{"token file gone", func(c *agent.Config) { c.TokenFile += "x" }, "the file of --token-file"},
		{"CA file gone", func(c *agent.Config) { c.CAFile = "/nonexistent" }, "the file of --ca-cert-file"},
		{"policy that is not valid", func(c *agent.Config) { c.PolicyFile = write(t, "policy.yaml", "deletion: false") }, "the policy of the cluster's owner"},
		{"policy in a folder that is gone", func(c *agent.Config) { c.PolicyFile = "/nonexistent/policy.yaml" }, "the folder of --policy-file"},
		{"kubeconfig gone", func(c *agent.Config) { c.Kubeconfig = "/nonexistent" }, "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := good
			tt.edit(&cfg)
			err := agent.Run(t.Context(), cfg)
			if !errors.Is(err, agent.ErrConfig) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Run() = %v, want ErrConfig with %q", err, tt.want)
			}
		})
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// await sends requests until the response is the expected one.
func await(ctx context.Context, t *testing.T, url string, code int, body string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last string
	for {
		if resp, err := http.Get(url); err == nil {
			got, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if last = fmt.Sprintf("%d %s", resp.StatusCode, got); resp.StatusCode == code && strings.Contains(string(got), body) {
				return
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s last answered %q, want %d with %q", url, last, code, body)
		case <-tick.C:
		}
	}
}
