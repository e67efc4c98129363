package gitsource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// evictIdle is how long a mirror must be unused before it can be evicted for others. Mirrors of polled
	// repositories are used more often. They would be fetched again at once, and others would have to be evicted
	// for them.
	evictIdle = 10 * time.Minute
	// headroom is the growth that a fetch may cause before mirrors are evicted for it.
	headroom = 64 << 20
)

// These errors identify the exceeded limit of the disk.
var (
	errOwnerDisk = fmt.Errorf("%w for the disk space of a tenant", errTooLarge)
	errTotalDisk = fmt.Errorf("%w for the disk space of all mirrors", errTooLarge)
	errFreeDisk  = fmt.Errorf("%w for the free space on the disk", errTooLarge)
)

// diskUsage is the disk space of one mirror.
type diskUsage struct {
	owner string
	bytes int64
	used  time.Time
}

// growth is a fetch in progress. Of two concurrent fetches the one that started first has priority: the later one
// counts the current size of the first, and the first counts the size of the later one before its fetch.
type growth struct {
	order      int64 // number of the fetch, in the order of their start
	sizeBefore int64 // size of the mirror when the fetch started
}

// sizeLimit is how large a mirror may become, and which limit determines that.
type sizeLimit struct {
	bytes int64
	limit error // errTooLarge, or one of the errors above
}

// reserveSpace determines how large a mirror may become. If there is too little space it evicts the least
// recently used mirrors, but never one in use. If there is still too little, it returns an error for users. The
// caller holds the writer lock.
func (m *Manager) reserveSpace(ctx context.Context, r *mirror) error {
	m.measureMirrors()
	m.mu.Lock()
	m.fetches++
	m.growing[r.key()] = growth{order: m.fetches, sizeBefore: m.disk[r.key()].bytes}
	m.mu.Unlock()
	for {
		exceeded := m.checkSpace(r)
		if exceeded == nil {
			return nil
		}
		err := r.sizeError(exceeded)
		if candidate := m.evictionCandidate(r, exceeded); candidate != "" {
			err = m.evict(ctx, candidate)
			if err == nil {
				continue
			}
		}
		m.mu.Lock()
		delete(m.growing, r.key())
		m.mu.Unlock()
		return err
	}
}

// reportSize records the current size of a mirror during a fetch, and returns how large it may become. Concurrent
// fetches change that limit.
func (m *Manager) reportSize(r *mirror, size int64) sizeLimit {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disk[r.key()] = diskUsage{r.owner, size, time.Now()}
	return m.sizeLimitLocked(r)
}

// key names a mirror among those of the manager.
func (r *mirror) key() string { return strings.TrimSuffix(filepath.Base(r.dir), mirrorSuffix) }

// checkSpace updates how large a mirror may become, and returns the limit that leaves no headroom, or nil.
func (m *Manager) checkSpace(r *mirror) (exceeded error) {
	m.mu.Lock()
	r.sizeLimit = m.sizeLimitLocked(r)
	wanted := min(m.disk[r.key()].bytes+headroom, m.cfg.MaxMirrorBytes)
	m.mu.Unlock()
	switch {
	case m.cfg.freeBytes() < m.cfg.MinFreeBytes:
		return errFreeDisk
	case r.sizeLimit.bytes < wanted:
		return r.sizeLimit.limit
	}
	return nil
}

// sizeLimitLocked returns how large a mirror may become, given the size of all others.
func (m *Manager) sizeLimitLocked(r *mirror) sizeLimit {
	var total, own int64
	order := m.growing[r.key()].order
	for key, d := range m.disk {
		if key == r.key() {
			continue
		}
		bytes := d.bytes
		if g, ok := m.growing[key]; ok && g.order > order {
			bytes = g.sizeBefore
		}
		total += bytes
		if d.owner == r.owner {
			own += bytes
		}
	}
	out := sizeLimit{m.cfg.MaxMirrorBytes, errTooLarge}
	for _, other := range []sizeLimit{{m.cfg.MaxTotalBytes - total, errTotalDisk}, {m.cfg.MaxOwnerBytes - own, errOwnerDisk}} {
		if other.bytes < out.bytes {
			out = other
		}
	}
	return out
}

// evictionCandidate returns the key of the mirror to evict for a limit, or "" if all eligible ones are in use.
func (m *Manager) evictionCandidate(r *mirror, exceeded error) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var best string
	var oldest time.Time
	for key, d := range m.disk {
		if key == r.key() || (errors.Is(exceeded, errOwnerDisk) && d.owner != r.owner) {
			continue
		}
		used := d.used
		if other := m.mirrors[key]; other != nil {
			if other.usage.users > 0 {
				continue
			}
			if other.usage.used.After(used) {
				used = other.usage.used
			}
		}
		if time.Since(used) >= m.evictIdle && (best == "" || used.Before(oldest)) {
			best, oldest = key, used
		}
	}
	return best
}

// evict deletes a mirror, unless it is in use.
func (m *Manager) evict(ctx context.Context, key string) error {
	n, _, err := readMetadata(filepath.Join(m.cfg.Dir, key+mirrorSuffix))
	if errors.Is(err, os.ErrNotExist) {
		m.setDiskUsage(key, diskUsage{})
		return nil
	}
	if err != nil {
		return err
	}
	r, err := m.acquireIdle(key, n, m.evictIdle)
	if err != nil {
		return err
	}
	if r == nil { // in use in the meantime: it counts as used now
		m.mu.Lock()
		defer m.mu.Unlock()
		d := m.disk[key]
		d.used = time.Now()
		m.disk[key] = d
		return nil
	}
	defer m.releaseDeleted(key, r)
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	if err := r.discardLocked(); err != nil {
		return err
	}
	m.setDiskUsage(key, diskUsage{})
	m.cfg.Log.InfoContext(ctx, "evicted the least recently used mirror to free disk space", "url", n.URL, "owner", n.Owner)
	return nil
}

// measureMirrors determines, once, the size of the mirrors that exist when the server starts.
func (m *Manager) measureMirrors() {
	m.measureOnce.Do(func() {
		entries, err := os.ReadDir(m.cfg.Dir)
		if err != nil {
			return // there are none
		}
		for _, e := range entries {
			key, ok := strings.CutSuffix(e.Name(), mirrorSuffix)
			if !ok {
				continue
			}
			dir := filepath.Join(m.cfg.Dir, e.Name())
			if n, used, err := readMetadata(dir); err == nil {
				m.setDiskUsage(key, diskUsage{n.Owner, folderSize(dir), used})
			}
		}
	})
}

// updateDiskUsage records the size of a mirror after a fetch. The caller holds the writer lock.
func (m *Manager) updateDiskUsage(r *mirror) {
	m.setDiskUsage(r.key(), diskUsage{r.owner, folderSize(r.dir), time.Now()})
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.growing, r.key())
}

// setDiskUsage records the size of a mirror. A size of 0 removes it.
func (m *Manager) setDiskUsage(key string, d diskUsage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.bytes == 0 {
		delete(m.disk, key)
		return
	}
	m.disk[key] = d
}

// freeBytes returns the free disk space for mirrors. If it is unknown, it returns the required minimum.
func (c *Config) freeBytes() int64 {
	var s unix.Statfs_t
	if err := unix.Statfs(c.Dir, &s); err != nil {
		return c.MinFreeBytes
	}
	return int64(s.Bavail) * int64(s.Bsize) //nolint:unconvert // the types differ between systems
}

// checkSize returns an error if a mirror is larger than limit, or if a limit of the disk is exceeded.
func (r *mirror) checkSize(limit int64) error {
	size := folderSize(r.dir)
	now := r.reportSize(size)
	switch {
	case r.cfg.freeBytes() < r.cfg.MinFreeBytes:
		return errFreeDisk
	case size > now.bytes:
		return now.limit
	case size <= limit:
		return nil
	case limit == r.sizeLimit.bytes:
		return r.sizeLimit.limit
	}
	return errTooLarge
}

// sizeError returns the error for users of an exceeded limit.
func (r *mirror) sizeError(limit error) error {
	out := &RemoteError{URL: r.url, cause: limit}
	switch {
	case errors.Is(limit, errOwnerDisk):
		out.Problem = fmt.Sprintf("the repositories of this tenant use all of the %s of disk space that a tenant may use on this server: "+
			"delete unused repositories, or ask the operator of the server to raise --git-tenant-disk", sizeText(r.cfg.MaxOwnerBytes))
	case errors.Is(limit, errTotalDisk):
		out.Problem = fmt.Sprintf("all repositories together use all of the %s of disk space that they may use on this server: "+
			"ask the operator of the server to raise --git-disk", sizeText(r.cfg.MaxTotalBytes))
	case errors.Is(limit, errFreeDisk):
		out.Problem = fmt.Sprintf("the disk of the server has less than %s of free space, so the server does not fetch: "+
			"ask the operator of the server to free disk space or to lower --git-min-free", sizeText(r.cfg.MinFreeBytes))
	default:
		out.Problem = fmt.Sprintf("the repository is larger than %s, the limit of this server", sizeText(r.cfg.MaxMirrorBytes))
	}
	return out
}
