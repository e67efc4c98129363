package server

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/internal/render/sandbox"
)

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
			t.Errorf("%s: got %v, want an error that names the flag and what there is", tt.reason, err)
		case tt.want >= 0 && (err != nil || len(got) != tt.want):
			t.Errorf("%s: got %v, %v", tt.reason, got, err)
		}
	}
}

// A server that cannot start a renderer still serves plain manifests, and says what it cannot; one that
// has to be confined does not start.
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
		t.Error("it starts without what is required")
	}
	cfg.Render = RenderConfig{}
	if r, err := openRenderer(t.Context(), cfg, prometheus.NewRegistry()); err != nil || r.builder() != nil || r.note() != "" {
		t.Errorf("without a program: %+v, %v", r, err)
	}
	cfg.Render = RenderConfig{Program: "x", Memory: 1 << 20}
	if _, err := openRenderer(t.Context(), cfg, prometheus.NewRegistry()); err == nil || !strings.Contains(err.Error(), "128 MiB") {
		t.Errorf("a limit with which nothing works gives %v", err)
	}
}
