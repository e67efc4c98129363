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
	// evictIdle is how long nobody has used a mirror that is deleted for others. Those of repositories that
	// are polled are used more often: they would come back at once, and others would have to go for them.
	evictIdle = 10 * time.Minute
	// headroom is what a fetch may bring at least before anything is deleted for it.
	headroom = 64 << 20
)

// The limits of the disk, each with what to do about it.
var (
	errOwnerDisk = fmt.Errorf("%w for the space that a tenant has", errTooLarge)
	errTotalDisk = fmt.Errorf("%w for the space that all mirrors have", errTooLarge)
	errFreeDisk  = fmt.Errorf("%w for the free space of the disk", errTooLarge)
)

// diskUse is what one mirror takes.
type diskUse struct {
	owner string
	bytes int64
	used  time.Time
}

// growth is a mirror that is being fetched into. Of two such mirrors the one that began first has the room: the other
// one counts what the first takes so far, and not the other way round.
type growth struct {
	turn   int64 // rises with every fetch
	before int64 // what the mirror took when the fetch began
}

// room is how large a mirror may become, and which limit says so.
type room struct {
	bytes int64
	limit error // errTooLarge, or one of the limits of the disk
}

// makeRoom finds out how large a mirror may become, whose writer's token the caller has. It deletes mirrors
// that were not used for the longest time when there is too little room, and never one in use. Where there
// is none the error is for users.
func (m *Manager) makeRoom(ctx context.Context, r *mirror) error {
	m.measure()
	m.mu.Lock()
	m.turns++
	m.growing[r.key()] = growth{turn: m.turns, before: m.disk[r.key()].bytes}
	m.mu.Unlock()
	for {
		short := m.roomNow(r)
		if short == nil {
			return nil
		}
		err := r.tooLarge(short)
		if victim := m.leastUsed(r, short); victim != "" {
			err = m.evict(ctx, victim)
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

// grown notes what a mirror takes that is being fetched into, and returns how large it may become now: others grow too.
func (m *Manager) grown(r *mirror, size int64) room {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disk[r.key()] = diskUse{r.owner, size, time.Now()}
	return m.roomLocked(r)
}

// key names a mirror among those of the manager.
func (r *mirror) key() string { return strings.TrimSuffix(filepath.Base(r.dir), mirrorSuffix) }

// roomNow notes how large a mirror may become as things are, and returns which limit leaves it no headroom.
func (m *Manager) roomNow(r *mirror) (short error) {
	m.mu.Lock()
	r.room = m.roomLocked(r)
	wanted := min(m.disk[r.key()].bytes+headroom, m.cfg.MaxMirrorBytes)
	m.mu.Unlock()
	switch {
	case m.cfg.freeBytes() < m.cfg.MinFreeBytes:
		return errFreeDisk
	case r.room.bytes < wanted:
		return r.room.limit
	}
	return nil
}

// roomLocked is how large a mirror may become beside what all others take.
func (m *Manager) roomLocked(r *mirror) room {
	var total, own int64
	turn := m.growing[r.key()].turn
	for key, d := range m.disk {
		if key == r.key() {
			continue
		}
		bytes := d.bytes
		if g, ok := m.growing[key]; ok && g.turn > turn {
			bytes = g.before
		}
		total += bytes
		if d.owner == r.owner {
			own += bytes
		}
	}
	out := room{m.cfg.MaxMirrorBytes, errTooLarge}
	for _, other := range []room{{m.cfg.MaxTotalBytes - total, errTotalDisk}, {m.cfg.MaxOwnerBytes - own, errOwnerDisk}} {
		if other.bytes < out.bytes {
			out = other
		}
	}
	return out
}

// leastUsed returns the mirror that goes first for a limit; "" when all that would help are in use.
func (m *Manager) leastUsed(r *mirror, short error) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var best string
	var oldest time.Time
	for key, d := range m.disk {
		if key == r.key() || (errors.Is(short, errOwnerDisk) && d.owner != r.owner) {
			continue
		}
		used := d.used
		if other := m.mirrors[key]; other != nil {
			if other.users > 0 {
				continue
			}
			if other.used.After(used) {
				used = other.used
			}
		}
		if time.Since(used) >= m.evictIdle && (best == "" || used.Before(oldest)) {
			best, oldest = key, used
		}
	}
	return best
}

// evict deletes a mirror, unless somebody has begun to use it.
func (m *Manager) evict(ctx context.Context, key string) error {
	n, _, err := readNotes(filepath.Join(m.cfg.Dir, key+mirrorSuffix))
	if errors.Is(err, os.ErrNotExist) {
		m.setDisk(key, diskUse{})
		return nil
	}
	if err != nil {
		return err
	}
	r, err := m.takeIdle(key, n, m.evictIdle)
	if err != nil {
		return err
	}
	if r == nil { // in use since: it counts as used now
		m.mu.Lock()
		defer m.mu.Unlock()
		d := m.disk[key]
		d.used = time.Now()
		m.disk[key] = d
		return nil
	}
	defer m.drop(key, r)
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	if err := r.discardLocked(); err != nil {
		return err
	}
	m.setDisk(key, diskUse{})
	m.cfg.Log.InfoContext(ctx, "deleted the mirror that was not used for the longest time, to make room", "url", n.URL, "owner", n.Owner)
	return nil
}

// measure finds out once what the mirrors take that an earlier run of the server has left.
func (m *Manager) measure() {
	m.measured.Do(func() {
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
			if n, used, err := readNotes(dir); err == nil {
				m.setDisk(key, diskUse{n.Owner, folderSize(dir), used})
			}
		}
	})
}

// weigh notes what a mirror takes after a fetch. The caller has the writer's token.
func (m *Manager) weigh(r *mirror) {
	m.setDisk(r.key(), diskUse{r.owner, folderSize(r.dir), time.Now()})
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.growing, r.key())
}

// setDisk notes what a mirror takes; nothing for one that is gone.
func (m *Manager) setDisk(key string, d diskUse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.bytes == 0 {
		delete(m.disk, key)
		return
	}
	m.disk[key] = d
}

// freeBytes is the space that is left to the server where the mirrors are. What is not known is enough.
func (c *Config) freeBytes() int64 {
	var s unix.Statfs_t
	if err := unix.Statfs(c.Dir, &s); err != nil {
		return c.MinFreeBytes
	}
	return int64(s.Bavail) * int64(s.Bsize) //nolint:unconvert // the types differ between systems
}

// checkSize returns errTooLarge when a mirror is larger than limit, or which limit of the disk is exceeded.
func (r *mirror) checkSize(limit int64) error {
	size := folderSize(r.dir)
	now := r.grown(size)
	switch {
	case r.cfg.freeBytes() < r.cfg.MinFreeBytes:
		return errFreeDisk
	case size > now.bytes:
		return now.limit
	case size <= limit:
		return nil
	case limit == r.room.bytes:
		return r.room.limit
	}
	return errTooLarge
}

// tooLarge is the error for users of a limit of the disk.
func (r *mirror) tooLarge(limit error) error {
	out := &RemoteError{URL: r.url, cause: limit}
	switch {
	case errors.Is(limit, errOwnerDisk):
		out.Problem = fmt.Sprintf("the mirrors of this tenant's repositories take the %s that a tenant may have on this server: "+
			"delete repositories that are not needed, or let the operator of the server raise --git-tenant-disk", sizeText(r.cfg.MaxOwnerBytes))
	case errors.Is(limit, errTotalDisk):
		out.Problem = fmt.Sprintf("the mirrors of all repositories take the %s that they may have on this server: "+
			"let the operator of the server raise --git-disk", sizeText(r.cfg.MaxTotalBytes))
	case errors.Is(limit, errFreeDisk):
		out.Problem = fmt.Sprintf("the disk of the server has less than %s of free space, below which nothing is fetched: "+
			"let the operator of the server free space, or lower --git-min-free", sizeText(r.cfg.MinFreeBytes))
	default:
		out.Problem = fmt.Sprintf("the repository is larger than %s, the limit of this server", sizeText(r.cfg.MaxMirrorBytes))
	}
	return out
}
