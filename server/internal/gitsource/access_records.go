package gitsource

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	accessRecordsFolder = "kedge-readers"
	// accessRecordTTL is how long the record of an unused credential is kept. Some credentials change every hour.
	accessRecordTTL = 30 * 24 * time.Hour
)

// accessRecords are the readers that have read the remote of a mirror successfully. All credentials of an owner
// share the files of a mirror, but only a reader with a record may read them. It is safe for concurrent use.
type accessRecords struct {
	dir string

	mu       sync.Mutex
	recorded map[string]time.Time // time of the last write, by file name
}

func newAccessRecords(mirror string) *accessRecords {
	return &accessRecords{dir: filepath.Join(mirror, accessRecordsFolder), recorded: map[string]time.Time{}}
}

// accessRecordName returns a file name that does not contain the reader, because callers choose the name of a
// reader.
func accessRecordName(reader string) string {
	sum := sha256.Sum256([]byte(reader))
	return hex.EncodeToString(sum[:16])
}

func (g *accessRecords) verified(reader string) bool {
	name := accessRecordName(reader)
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.recorded[name]; ok {
		return true
	}
	info, err := os.Stat(filepath.Join(g.dir, name))
	if err != nil {
		return false
	}
	g.recorded[name] = info.ModTime()
	return true
}

func (g *accessRecords) add(reader string) error {
	name, now := accessRecordName(reader), time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.recorded[name]) < touchInterval {
		return nil
	}
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return fmt.Errorf("recording access to a mirror: %w", err)
	}
	if err := g.removeExpiredLocked(now); err != nil {
		return fmt.Errorf("recording access to a mirror: %w", err)
	}
	if err := os.WriteFile(filepath.Join(g.dir, name), nil, 0o600); err != nil {
		return fmt.Errorf("recording access to a mirror: %w", err)
	}
	g.recorded[name] = now
	return nil
}

func (g *accessRecords) removeExpiredLocked(now time.Time) error {
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < accessRecordTTL {
			continue
		}
		if err := os.Remove(filepath.Join(g.dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		delete(g.recorded, e.Name())
	}
	return nil
}

// clear removes all records from memory, after the files were deleted.
func (g *accessRecords) clear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.recorded)
}
