package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/apiproxy"
)

// through routes an agent that is not started yet through a proxy to the API server, with the permissions of
// its ServiceAccount. A client sends no credential over plain HTTP, so the proxy does.
func (a *testAgent) through(tb testing.TB) *apiproxy.Proxy {
	tb.Helper()
	proxy := apiproxy.New(tb, a.cluster.ServiceAccountConfig(tb, "kedge-agent-"+a.name, "kedge-agent"))
	file := a.flag(tb, "kubeconfig")
	content, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(content, &config); err != nil {
		tb.Fatal(err)
	}
	clusters := config["clusters"].([]any)
	clusters[0].(map[string]any)["cluster"] = map[string]any{"server": proxy.Config().Host}
	if content, err = json.Marshal(config); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		tb.Fatal(err)
	}
	return proxy
}

// writes reports whether a request is meant to change an object of a namespace.
func writes(r *http.Request, namespace string) bool {
	return r.Method != http.MethodGet && !r.URL.Query().Has("dryRun") && strings.Contains(r.URL.Path, "/namespaces/"+namespace+"/")
}

// gate lets the first n writes to the objects of a namespace pass and blocks all others until it is opened.
type gate struct {
	reached chan struct{} // closed when the first is held back
	open    context.CancelFunc
}

func newGate(tb testing.TB, proxy *apiproxy.Proxy, namespace string, n int) *gate {
	tb.Helper()
	opened, open := context.WithCancel(tb.Context())
	g := &gate{reached: make(chan struct{}), open: open}
	let := 0
	proxy.Do(func(r *http.Request) *apiproxy.Fault {
		if !writes(r, namespace) {
			return nil
		}
		if let++; let <= n {
			return nil
		}
		if let == n+1 {
			close(g.reached)
		}
		return &apiproxy.Fault{Hold: opened.Done()}
	})
	return g
}
