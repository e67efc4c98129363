package gitsource

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// Every fetch adds a pack. More packs make it slower to find an object.
	defaultMaxPacks = 50
	// A full garbage collection removes objects that became unreachable by a force push. It rewrites the whole
	// mirror, so it is rare.
	collectInterval = 7 * 24 * time.Hour
	pruneAge        = "--prune=1.day.ago"

	collectedFile = "kedge-collected"

	// maxMaintenance limits concurrent maintenance: each runs a process that reads a whole mirror.
	maxMaintenance = 2
)

// startMaintenance starts maintenance of a mirror in the background if it is due. The caller holds the writer
// lock. Maintenance locks it too, so that it never runs during a fetch.
func (m *Manager) startMaintenance(r *mirror) {
	if r.maintaining || !needsMaintenance(r.dir, r.maxPacks) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	r.maintaining = true
	r.usage.users++
	m.work.Go(func() {
		defer m.release(r)
		select {
		case m.maintenance <- struct{}{}:
			defer func() { <-m.maintenance }()
		case <-m.background.Done():
			return
		}
		if err := r.lock(m.background); err != nil {
			return // closing
		}
		defer r.unlock()
		release, err := m.budget.limiter.Acquire(m.background, r.owner) // its processes count in the plan of memory use
		if err != nil {
			return // closing
		}
		defer release()
		ctx, cancel := context.WithTimeout(m.background, m.cfg.Timeout)
		defer cancel()
		r.maintaining = false
		if err := r.maintainLocked(ctx); err != nil && m.background.Err() == nil {
			r.ready = false
			r.cfg.Log.WarnContext(ctx, "maintenance of a mirror failed", "url", r.url, "error", err)
		}
	})
}

func needsMaintenance(dir string, maxPacks int) bool {
	entries, err := os.ReadDir(filepath.Join(dir, "objects", "pack"))
	if err != nil {
		return false
	}
	packs := 0
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".pack") {
			packs++
		}
	}
	return packs > maxPacks
}

// hasPacks reports whether the mirror contains a fetched pack.
func hasPacks(dir string) bool { return needsMaintenance(dir, 0) }

// maintainLocked merges small packs, at a cost proportional to what was fetched since the last time, and
// sometimes collects garbage.
func (r *mirror) maintainLocked(ctx context.Context) error {
	stamp := filepath.Join(r.dir, collectedFile)
	info, err := os.Stat(stamp)
	if err == nil && time.Since(info.ModTime()) < collectInterval {
		if _, err := r.git.run(ctx, r.dir, "repack", "-d", "--quiet", "--geometric=2"); err != nil {
			return err
		}
		return r.markPromisorPacks()
	}
	if _, err := r.git.do(ctx, gitCall{dir: r.dir, config: r.partialConfig(""), args: []string{"gc", "--quiet", pruneAge}}); err != nil {
		return err
	}
	return errors.Join(r.markPromisorPacks(), r.stampCollected())
}

// stampCollected records that garbage was collected now.
func (r *mirror) stampCollected() error {
	return os.WriteFile(filepath.Join(r.dir, collectedFile), nil, 0o600)
}
