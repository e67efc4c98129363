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
	// Every fetch adds a pack, and finding an object gets slower with their number.
	defaultMaxPacks = 50
	// Objects that nothing names any more, after a force-push, go in a full collection. It rewrites
	// the whole mirror and so is rare.
	collectEvery = 7 * 24 * time.Hour
	pruneAge     = "--prune=1.day.ago"

	collectedFile = "kedge-collected"

	// maxUpkeep is how many mirrors are kept up at once: each takes a process that reads the whole mirror.
	maxUpkeep = 2
)

// maintainLater starts upkeep of a mirror in the background if it is due. The caller has the
// writer's token; upkeep takes it in turn, so that it never meets a fetch.
func (m *Manager) maintainLater(r *mirror) {
	if r.maintaining || !needsUpkeep(r.dir, r.maxPacks) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	r.maintaining = true
	r.users++
	m.work.Go(func() {
		defer m.end(r)
		select {
		case m.upkeep <- struct{}{}:
			defer func() { <-m.upkeep }()
		case <-m.background.Done():
			return
		}
		if err := r.lock(m.background); err != nil {
			return // closing
		}
		defer r.unlock()
		release, err := m.budget.limiter.Acquire(m.background, r.owner) // its processes are among those that memory is planned for
		if err != nil {
			return // closing
		}
		defer release()
		ctx, cancel := context.WithTimeout(m.background, m.cfg.Timeout)
		defer cancel()
		r.maintaining = false
		if err := r.maintainLocked(ctx); err != nil && m.background.Err() == nil {
			r.ready = false
			r.cfg.Log.WarnContext(ctx, "upkeep of a mirror failed", "url", r.url, "error", err)
		}
	})
}

func needsUpkeep(dir string, maxPacks int) bool {
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

// hasPacks reports whether anything was fetched.
func hasPacks(dir string) bool { return needsUpkeep(dir, 0) }

// maintainLocked joins small packs, which costs in proportion to what came since the last time,
// and now and then collects garbage.
func (r *mirror) maintainLocked(ctx context.Context) error {
	stamp := filepath.Join(r.dir, collectedFile)
	info, err := os.Stat(stamp)
	if err == nil && time.Since(info.ModTime()) < collectEvery {
		if _, err := r.git.run(ctx, r.dir, "repack", "-d", "--quiet", "--geometric=2"); err != nil {
			return err
		}
		return r.markPromised()
	}
	if _, err := r.git.do(ctx, call{dir: r.dir, config: r.partialConfig(""), args: []string{"gc", "--quiet", pruneAge}}); err != nil {
		return err
	}
	return errors.Join(r.markPromised(), r.stampCollected())
}

// stampCollected remembers that the mirror holds no garbage as of now.
func (r *mirror) stampCollected() error {
	return os.WriteFile(filepath.Join(r.dir, collectedFile), nil, 0o600)
}
