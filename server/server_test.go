package server_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/server"
)

// banner is the output of a server, readable while it writes.
type banner struct {
	mu    sync.Mutex
	text  bytes.Buffer
	ready chan struct{}
	once  sync.Once
}

func (b *banner) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.text.Write(p)
	if strings.Contains(b.text.String(), "is ready") {
		b.once.Do(func() { close(b.ready) })
	}
	return n, err
}

func (b *banner) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startServer runs a server until the test calls stop, and returns its output.
func startServer(t *testing.T, cfg server.Config) (said *banner, stop func() error) {
	t.Helper()
	said = &banner{ready: make(chan struct{})}
	cfg.Out = said
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, cfg) }()
	select {
	case <-said.ready:
	case err := <-done:
		t.Fatalf("the server ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("the server is not ready")
	}
	return said, sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

func TestStartThatFailsForItsPortCostsNoToken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := server.Config{DataDir: t.TempDir(), Listen: taken.Addr().String()}
	if err := server.Run(t.Context(), cfg); err == nil {
		t.Fatal("a server started on a port that is in use")
	}
	cfg.Listen = "127.0.0.1:0"
	said, stop := startServer(t, cfg)
	if !strings.Contains(said.String(), "kedge-api-") {
		t.Errorf("the first start that works prints no token:\n%s", said)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestSecondServerKeepsAwayFromTheData(t *testing.T) {
	t.Parallel()
	cfg := server.Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0"}
	_, stop := startServer(t, cfg)
	if err := server.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "another kedge-server") {
		t.Errorf("a second server on the same data returned %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	again, stop := startServer(t, cfg)
	if strings.Contains(again.String(), "kedge-api-") {
		t.Errorf("a later start prints a token:\n%s", again)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	cfg.NewAdminToken = true
	said, stop := startServer(t, cfg)
	if !strings.Contains(said.String(), "kedge-api-") {
		t.Errorf("--new-admin-token prints none:\n%s", said)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
