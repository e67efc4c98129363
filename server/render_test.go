package server

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/render/sandbox"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// renderProgram is the real server, which is its own renderer, built without cgo like a release.
func renderProgram(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the program")
	}
	if dir := os.Getenv("KEDGE_BIN"); dir != "" {
		return filepath.Join(dir, "kedge-server")
	}
	root, err := testkit.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "./cmd/kedge-server")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	return filepath.Join(dir, "kedge-server")
}

// A sandbox without one of its mechanisms renders, and the operator is informed: by /readyz, which stays ready,
// and by a warning with the cause.
func TestAWeakerSandboxIsTold(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	cfg := Config{Log: slog.New(slog.NewJSONHandler(&said, nil)), Render: RenderConfig{Program: renderProgram(t), off: []sandbox.Mechanism{sandbox.Landlock}}}
	r, err := openRenderer(t.Context(), cfg, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if r.builder(nil) == nil {
		t.Fatal("it renders nothing")
	}
	ready := httptest.NewRecorder()
	health := obs.Handler(prometheus.NewRegistry(), func(context.Context) error { return nil }, r.note)
	health.ServeHTTP(ready, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	if body := ready.Body.String(); ready.Code != 200 || !strings.Contains(body, "sandbox of renders is incomplete") || !strings.Contains(body, "landlock") {
		t.Errorf("/readyz answers %d: %s", ready.Code, body)
	}
	var line struct{ Level, Reason string }
	if err := json.Unmarshal(said.Bytes(), &line); err != nil || line.Level != "WARN" || !strings.Contains(line.Reason, "landlock") {
		t.Errorf("the log has %s (%v)", said.Bytes(), err)
	}
	cfg.Render.RequireSandbox = []string{"landlock"}
	if _, err := openRenderer(t.Context(), cfg, prometheus.NewRegistry()); err == nil || !strings.Contains(err.Error(), "landlock") {
		t.Errorf("where it is required: %v", err)
	}
}

func TestWhatMayBeRequiredOfTheSandbox(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason string
		given  []string
		want   int // mechanisms; −1 when it is refused
	}{
		{"nothing", nil, 0},
		{"two of them", []string{"seccomp", "landlock"}, 2},
		{"all", []string{"all"}, len(sandbox.All())},
		{"a mistyped one", []string{"secomp"}, -1},
	}
	for _, tt := range tests {
		got, err := RenderConfig{RequireSandbox: tt.given}.mechanisms()
		switch {
		case tt.want < 0 && (err == nil || !strings.Contains(err.Error(), "--require-sandbox") || !strings.Contains(err.Error(), "landlock")):
			t.Errorf("%s: got %v, want an error with the flag and the mechanisms", tt.reason, err)
		case tt.want >= 0 && (err != nil || len(got) != tt.want):
			t.Errorf("%s: got %v, %v", tt.reason, got, err)
		}
	}
}

// A server that cannot start a renderer still serves plain manifests and reports the problem. With a required
// sandbox, it does not start.
func TestAServerWithoutRenderers(t *testing.T) {
	t.Parallel()
	cfg := Config{Log: slog.New(slog.DiscardHandler), Render: RenderConfig{Program: filepath.Join(t.TempDir(), "none")}}
	r, err := openRenderer(t.Context(), cfg, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if !strings.Contains(r.note(), "Kustomize and Helm cannot be rendered") {
		t.Errorf("the note is %q", r.note())
	}
	cfg.Render.RequireSandbox = []string{"seccomp"}
	if _, err := openRenderer(t.Context(), cfg, prometheus.NewRegistry()); err == nil {
		t.Error("it starts without a required mechanism")
	}
	cfg.Render = RenderConfig{}
	if r, err := openRenderer(t.Context(), cfg, prometheus.NewRegistry()); err != nil || r.builder(nil) != nil || r.note() != "" {
		t.Errorf("without a program: %+v, %v", r, err)
	}
	cfg.Render = RenderConfig{Program: "x", Memory: 1 << 20}
	if _, err := openRenderer(t.Context(), cfg, prometheus.NewRegistry()); err == nil || !strings.Contains(err.Error(), "128 MiB") {
		t.Errorf("an impossible limit gives %v", err)
	}
}
