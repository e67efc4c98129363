package obs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/obs"
)

// covers: O1
func TestHandlerServesHealthAndMetrics(t *testing.T) {
	t.Parallel()
	var problem error
	note := ""
	srv := httptest.NewServer(obs.Handler(obs.NewRegistry("v9.9.9"), func(context.Context) error { return problem }, func() string { return note }))
	defer srv.Close()

	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get(srv.URL + path)
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
	for _, path := range []string{"/livez", "/readyz"} {
		if code, body := get(path); code != http.StatusOK || body != "ok\n" {
			t.Errorf("GET %s = %d %q, want 200 ok", path, code, body)
		}
	}
	if code, body := get("/metrics"); code != http.StatusOK || !strings.Contains(body, `kedge_build_info{version="v9.9.9"} 1`) {
		t.Errorf("GET /metrics = %d without the build, in:\n%s", code, body)
	}
	note = "a limitation"
	if code, body := get("/readyz"); code != http.StatusOK || body != "ok\na limitation\n" {
		t.Errorf("GET /readyz = %d %q, want the note", code, body)
	}
	problem = errors.New("the server refused the token")
	if code, body := get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, problem.Error()) {
		t.Errorf("GET /readyz = %d %q, want 503 with the reason", code, body)
	}
	if code, _ := get("/livez"); code != http.StatusOK {
		t.Errorf("GET /livez = %d while not ready, want 200: a restart would not help", code)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- obs.Serve(ctx, l, http.NotFoundHandler()) }()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Serve() = %v, want nil", err)
	}
}

// covers: O2
func TestNewLoggerWritesTheRequestedFormat(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := obs.NewLogger(&out, obs.FormatJSON)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("applied", obs.KeyTenant, "default", obs.Err(errors.New("boom")))
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("not JSON: %v in %q", err, out.String())
	}
	if line[obs.KeyTenant] != "default" || line[obs.KeyError] != "boom" {
		t.Errorf("line = %v, want tenant and error", line)
	}
	if _, err := obs.NewLogger(&out, "xml"); err == nil {
		t.Error("NewLogger(xml) accepted an unknown format")
	}
}
