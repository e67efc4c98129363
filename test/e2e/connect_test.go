package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// officeName is a name that no resolver knows (RFC 2606): only the proxy can resolve it. A loopback address
// would not work, because proxy settings never apply to those.
const officeName = "kedge.invalid"

// covers: C2
func TestAgentConnectsThroughAProxy(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, reason string
		address      string
		variable     string // that names the proxy to the agent
		server       []string
		allowH2      bool
		used         func(*forwardProxy) int64
	}{
		{
			name: "ws", reason: "a plain WebSocket is an HTTP/1.1 request that the proxy forwards",
			address: "ws://" + officeName, variable: "HTTP_PROXY",
			used: func(p *forwardProxy) int64 { return p.upgrades.Load() },
		},
		{
			name: "wss", reason: "a WebSocket with TLS goes through a tunnel in which no HTTP/2 is spoken",
			address: "wss://" + officeName + ":8443", variable: "HTTPS_PROXY", server: []string{"--tls-host", officeName},
			used: func(p *forwardProxy) int64 { return p.tunnels.Load() },
		},
		{
			name: "grpcs", reason: "gRPC with TLS goes through a tunnel that is not inspected",
			address: "grpcs://" + officeName, variable: "HTTPS_PROXY", server: []string{"--tls-host", officeName}, allowH2: true,
			used: func(p *forwardProxy) int64 { return p.tunnels.Load() },
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster, s, repo := testkit.SharedCluster(t), startServer(t, c.server...), newRepo(t)
			ns := cluster.Namespace(t)
			proxy := newForwardProxy(t, hostPort(s.URL))
			proxy.allowH2 = c.allowH2
			a := install(t, s, cluster, apiv1.EnrollAgent{Name: "proxied-" + c.name, ServerAddress: c.address})
			a.pod.Env = append(a.pod.Env, c.variable+"="+proxy.URL)
			a.run(t)
			a.awaitConnected(t, s)
			if c.used(proxy) == 0 {
				t.Fatalf("%s: the agent bypassed the proxy", c.reason)
			}

			first := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "proxied", "one")})
			s.deploy(t, apiv1.CreateDeployment{Name: "proxied", Source: apiv1.Source{RepoURL: repo.url}})
			s.awaitDeployment(t, "proxied", healthyAt(first, 1))
			shows(t, cluster, "one", "-n", ns, "get", "configmap", "proxied", "-o", "jsonpath={.data.value}")
			if n := proxy.refused.Load(); n > 0 {
				t.Errorf("%s: the agent tried HTTP/2 %d times", c.reason, n)
			}
		})
	}
}

// The control of the test above: the proxy does not allow everything.
//
// covers: C2, C11
func TestProxyWithoutHTTP2StopsGRPCAndTheAgentSaysSo(t *testing.T) {
	t.Parallel()
	cluster, s := testkit.SharedCluster(t), startServer(t, "--tls-host", officeName)
	proxy := newForwardProxy(t, hostPort(s.URL))
	a := install(t, s, cluster, apiv1.EnrollAgent{Name: "stopped-by-proxy", ServerAddress: "grpcs://" + officeName})
	a.pod.Env = append(a.pod.Env, "HTTPS_PROXY="+proxy.URL)
	a.run(t)
	health := a.health(t)
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		code, body, err := fetch(ctx, http.DefaultClient, health+"/readyz")
		if err == nil && (code != http.StatusServiceUnavailable || !strings.Contains(body, officeName) || proxy.refused.Load() == 0) {
			err = fmt.Errorf("the agent says %d %q, and the proxy has refused HTTP/2 %d times", code, body, proxy.refused.Load())
		}
		return err
	})
	v, err := s.agent(t.Context(), a.name)
	if err != nil || v.Connected {
		t.Errorf("the agent is connected: %t, %v", v.Connected, err)
	}
}
