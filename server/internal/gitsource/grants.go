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
	grantsFolder = "kedge-readers"
	// grantsKept is how long a credential is remembered that is no longer used. Some change hourly.
	grantsKept = 30 * 24 * time.Hour
)

// grants are the readers that have read the remote of a mirror with success. The files of a mirror
// are shared by all credentials of its owner; what is in it is served only to a reader that has shown
// that it may have it. It is safe for concurrent use.
type grants struct {
	dir string

	mu    sync.Mutex
	given map[string]time.Time // when it was last written, by file name
}

func newGrants(mirror string) *grants {
	return &grants{dir: filepath.Join(mirror, grantsFolder), given: map[string]time.Time{}}
}

// grantName says nothing of the reader, whose name is the caller's to choose.
func grantName(reader string) string {
	sum := sha256.Sum256([]byte(reader))
	return hex.EncodeToString(sum[:16])
}

func (g *grants) has(reader string) bool {
	name := grantName(reader)
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.given[name]; ok {
		return true
	}
	info, err := os.Stat(filepath.Join(g.dir, name))
	if err != nil {
		return false
	}
	g.given[name] = info.ModTime()
	return true
}

func (g *grants) add(reader string) error {
	name, now := grantName(reader), time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.given[name]) < touchEvery {
		return nil
	}
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return fmt.Errorf("noting who may read a mirror: %w", err)
	}
	if err := g.dropOldLocked(now); err != nil {
		return fmt.Errorf("noting who may read a mirror: %w", err)
	}
	if err := os.WriteFile(filepath.Join(g.dir, name), nil, 0o600); err != nil {
		return fmt.Errorf("noting who may read a mirror: %w", err)
	}
	g.given[name] = now
	return nil
}

func (g *grants) dropOldLocked(now time.Time) error {
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < grantsKept {
			continue
		}
		if err := os.Remove(filepath.Join(g.dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		delete(g.given, e.Name())
	}
	return nil
}

// clear forgets all readers, when the files are gone.
func (g *grants) clear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.given)
}
