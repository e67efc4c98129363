package gitsource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	mirrorSuffix  = ".git"
	deletedSuffix = ".gone"
)

// Forget deletes the mirrors for which keep returns false and that were unused for at least age. It returns their
// number. It does not delete a mirror in use. A call for a mirror that is being deleted waits and then finds
// none. Trees that were opened longer than age ago may become unreadable.
func (m *Manager) Forget(ctx context.Context, age time.Duration, keep func(owner, url string) bool) (int, error) {
	entries, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		return 0, fmt.Errorf("listing mirrors: %w", err)
	}
	deleted := 0
	var failed error
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), deletedSuffix) {
			failed = errors.Join(failed, os.RemoveAll(filepath.Join(m.cfg.Dir, e.Name())))
		}
		failed = errors.Join(failed, removeExpiredRejection(filepath.Join(m.cfg.Dir, e.Name())))
		key, ok := strings.CutSuffix(e.Name(), mirrorSuffix)
		if !ok {
			continue
		}
		removed, err := m.forget(ctx, key, age, keep)
		if errors.Is(err, ErrClosed) || ctx.Err() != nil {
			return deleted, errors.Join(failed, err)
		}
		if removed {
			deleted++
		}
		failed = errors.Join(failed, err)
	}
	return deleted, failed
}

func (m *Manager) forget(ctx context.Context, key string, age time.Duration, keep func(owner, url string) bool) (bool, error) {
	n, used, err := readMetadata(filepath.Join(m.cfg.Dir, key+mirrorSuffix))
	kept := keep(n.Owner, n.URL) || (n.Parent != "" && keep(n.Owner, n.Parent))
	if err != nil || kept || time.Since(used) < age {
		return false, err
	}
	r, err := m.acquireIdle(key, n, age)
	if r == nil || err != nil {
		return false, err
	}
	defer m.releaseDeleted(key, r)
	if err := r.lock(ctx); err != nil {
		return false, err
	}
	defer r.unlock()
	if err := r.discardLocked(); err != nil {
		return false, err
	}
	m.setDiskUsage(key, diskUsage{})
	r.cfg.Log.InfoContext(ctx, "deleted the mirror of an unused repository", "url", n.URL)
	return true, nil
}

// acquireIdle makes the caller the only user of a mirror. It returns nil if the mirror has other users or was
// used within age.
func (m *Manager) acquireIdle(key string, n metadata, age time.Duration) (*mirror, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	r := m.mirrors[key]
	if r == nil {
		r = m.newMirror(key, n)
		m.mirrors[key] = r
	}
	if r.usage.users > 0 || time.Since(r.usage.used) < age {
		return nil, nil
	}
	r.usage.users++
	return r, nil
}

// releaseDeleted ends the use of a mirror that was deleted. It keeps the object while other users wait for it,
// because there must not be two objects for one folder.
func (m *Manager) releaseDeleted(key string, r *mirror) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.usage.users--
	if r.usage.users == 0 && !r.exists() {
		delete(m.mirrors, key)
	}
}
