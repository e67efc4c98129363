// Package sqlitetest provides migrated SQLite databases for tests.
package sqlitetest

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
)

// Path returns the path of a new, migrated, empty database. It is a copy, because a migration takes longer than
// many tests.
func Path(t testing.TB) string {
	t.Helper()
	data, err := migrated()
	if err != nil {
		t.Fatalf("making a database to copy: %v", err)
	}
	path := filepath.Join(t.TempDir(), "kedge.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatalf("copying a database: %v", err)
	}
	return path
}

// migrated is the content of a database file. A closed store leaves everything in that one file.
var migrated = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "kedge-sqlite-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "kedge.db")
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})
