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
	mirrorSuffix = ".git"
	goneSuffix   = ".gone"
)

// Forget deletes the mirrors for which keep says no and that nobody has used for at least age, and
// returns how many. One that is in use is left alone; a call for one that is being deleted waits and
// finds it gone, as if it had never been. Trees that were opened before that age can then not be
// read any further.
func (m *Manager) Forget(ctx context.Context, age time.Duration, keep func(owner, url string) bool) (int, error) {
	entries, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		return 0, fmt.Errorf("looking for mirrors: %w", err)
	}
	deleted := 0
	var failed error
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), goneSuffix) {
			failed = errors.Join(failed, os.RemoveAll(filepath.Join(m.cfg.Dir, e.Name())))
		}
		failed = errors.Join(failed, forgetExceeded(filepath.Join(m.cfg.Dir, e.Name())))
		key, ok := strings.CutSuffix(e.Name(), mirrorSuffix)
		if !ok {
			continue
		}
		gone, err := m.forget(ctx, key, age, keep)
		if errors.Is(err, ErrClosed) || ctx.Err() != nil {
			return deleted, errors.Join(failed, err)
		}
		if gone {
			deleted++
		}
		failed = errors.Join(failed, err)
	}
	return deleted, failed
}

func (m *Manager) forget(ctx context.Context, key string, age time.Duration, keep func(owner, url string) bool) (bool, error) {
	n, used, err := readNotes(filepath.Join(m.cfg.Dir, key+mirrorSuffix))
	kept := keep(n.Owner, n.URL) || (n.Parent != "" && keep(n.Owner, n.Parent))
	if err != nil || kept || time.Since(used) < age {
		return false, err
	}
	r, err := m.takeIdle(key, n, age)
	if r == nil || err != nil {
		return false, err
	}
	defer m.drop(key, r)
	if err := r.lock(ctx); err != nil {
		return false, err
	}
	defer r.unlock()
	if err := r.discardLocked(); err != nil {
		return false, err
	}
	m.setDisk(key, diskUse{})
	r.cfg.Log.InfoContext(ctx, "deleted the mirror of a repository that is not used", "url", n.URL)
	return true, nil
}

// takeIdle makes the caller the one user of a mirror, unless it has others or had some within age;
// then it returns nil.
func (m *Manager) takeIdle(key string, n notes, age time.Duration) (*mirror, error) {
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
	if r.users > 0 || time.Since(r.used) < age {
		return nil, nil
	}
	r.users++
	return r, nil
}

// drop ends the use of a mirror, and lets go of it if nobody waits for it. While somebody does, no
// other may be made for the same folder.
func (m *Manager) drop(key string, r *mirror) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.users--
	if r.users == 0 && !r.exists() {
		delete(m.mirrors, key)
	}
}
