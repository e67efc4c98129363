package server

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const keySize = 32

// loadKey returns the server's own secret, made on the first start.
func loadKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, "server.key")
	key, err := os.ReadFile(path)
	if err == nil {
		if len(key) != keySize {
			return nil, fmt.Errorf("reading %s: it has %d bytes, not %d: restore it from a backup", path, len(key), keySize)
		}
		return key, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the server key: %w", err)
	}
	key = make([]byte, keySize)
	rand.Read(key) // never fails
	// Renamed into place: a crash leaves no half of a key.
	if err := os.WriteFile(path+".new", key, 0o600); err != nil {
		return nil, fmt.Errorf("writing the server key: %w", err)
	}
	return key, os.Rename(path+".new", path)
}
