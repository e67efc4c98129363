package server_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/server"
)

// start starts a server that should fail, and returns its error.
func start(t *testing.T, cfg server.Config) error {
	t.Helper()
	// A server that starts anyway stops gracefully, without an error.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return server.Run(ctx, cfg)
}

// New keys instead of lost ones would not work: every webhook secret would change, and no credential could be
// decrypted. So the server refuses to start until the old keys are back.
func TestLostKeysAreNotReplaced(t *testing.T) {
	t.Parallel()
	cfg := server.Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0"}
	_, stop := startServer(t, cfg) // the first start creates them
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cfg.DataDir, "keys")
	lost, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := start(t, cfg); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "new-key") {
		t.Errorf("without its keys it says %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("new keys were made: %v", err)
	}
	if err := os.WriteFile(path, lost, 0o600); err != nil {
		t.Fatal(err)
	}
	_, stop = startServer(t, cfg)
	if err := stop(); err != nil {
		t.Error(err)
	}
	// If they are lost, new ones can be created explicitly.
	if err := errors.Join(os.Remove(path), server.NewKey(path, server.KeyFirst)); err != nil {
		t.Fatal(err)
	}
	_, stop = startServer(t, cfg)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A PostgreSQL database is there to be shared; a data directory is not: the Git mirrors in it belong to one
// process.
func TestSecondServerKeepsAwayFromTheMirrorsOfASharedDatabase(t *testing.T) {
	t.Parallel()
	db := pg.Database(t)
	keys := filepath.Join(t.TempDir(), "keys")
	if err := server.NewKey(keys, server.KeyFirst); err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0", Database: db.URL, KeyFile: keys}
	_, stop := startServer(t, cfg)
	if err := start(t, cfg); err == nil || !strings.Contains(err.Error(), "another kedge-server") {
		t.Errorf("a second server on the same data directory says %v", err)
	}
	other := cfg
	other.DataDir = t.TempDir()
	_, stopOther := startServer(t, other)
	if err := errors.Join(stopOther(), stop()); err != nil {
		t.Error(err)
	}
	_, stop = startServer(t, cfg) // the lock ends with its process
	if err := stop(); err != nil {
		t.Error(err)
	}
}
