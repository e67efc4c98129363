package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server"
)

// covers: O1 (metrics and details are not on the public port)
func TestMetricsHaveAListenerOfTheirOwn(t *testing.T) {
	t.Parallel()
	said, stop := startServer(t, server.Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0", MetricsListen: "127.0.0.1:0"})
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	at := map[string]string{}
	for line := range strings.Lines(said.String()) {
		if fields := strings.Fields(line); len(fields) > 1 {
			at[fields[0]] = fields[1]
		}
	}
	for _, c := range []struct {
		reason, url string
		code        int
		text        string
	}{
		{"metrics on their own listener", at["metrics"], http.StatusOK, "kedge_build_info{"},
		{"health on that listener", strings.TrimSuffix(at["metrics"], "/metrics") + "/readyz", http.StatusOK, "ok"},
		{"no metrics on the public port", at["address"] + "/metrics", http.StatusNotFound, ""},
		{"readiness on the public port is a bare code", at["address"] + "/readyz", http.StatusOK, "ok\n"},
		{"liveness on the public port", at["address"] + "/livez", http.StatusOK, "ok\n"},
	} {
		resp, err := http.Get(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.reason, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != c.code || !strings.Contains(string(body), c.text) {
			t.Errorf("%s: got %d %q, %v", c.reason, resp.StatusCode, body, err)
		}
		if strings.HasPrefix(c.url, at["address"]) && len(body) > 100 {
			t.Errorf("%s: the public port shows %q", c.reason, body)
		}
	}
}
