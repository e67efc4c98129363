package gitsource

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"time"
)

// handle is the use of a mirror by one call. A mirror in use is not deleted.
type handle struct {
	*mirror
	access Access // with the canonical URL
	reader string
}

// acquire returns the mirror of an access, which may not exist on disk yet. The caller calls release.
func (m *Manager) acquire(a Access) (*handle, error) {
	var err error
	if a.URL, err = m.checkStored(a.URL); err != nil {
		return nil, err
	}
	reader, err := a.reader()
	if err != nil {
		return nil, err
	}
	key, now := mirrorKey(a.Owner, a.URL), time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	r := m.mirrors[key]
	if r == nil {
		r = m.newMirror(key, metadata{Owner: a.Owner, URL: a.URL, Parent: a.parent})
		m.mirrors[key] = r
	}
	r.usage.users++
	if now.Sub(r.usage.touched) > touchInterval {
		if err := touchMetadata(r.dir, now); err == nil { // otherwise the next call tries again
			r.usage.touched = now
		}
	}
	return &handle{mirror: r, access: a, reader: reader}, nil
}

func (m *Manager) release(r *mirror) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.usage.users--
	r.usage.used = time.Now()
	// Every commit can refer to other submodules: keep no mirror of one that cannot be fetched.
	if r.usage.users == 0 && r.parent != "" && !r.exists() {
		delete(m.mirrors, r.key())
	}
}

func (m *Manager) newMirror(key string, n metadata) *mirror {
	r := newMirror(&m.cfg, m.git, m.readers, n, filepath.Join(m.cfg.Dir, key+mirrorSuffix))
	r.reportSize = func(size int64) sizeLimit { return m.reportSize(r, size) }
	return r
}

// mirrorKey returns the folder name of a repository of an owner. Owners share nothing, not even the knowledge
// whether a mirror exists.
func mirrorKey(owner, url string) string {
	sum := sha256.Sum256([]byte(owner + "\x00" + url))
	return hex.EncodeToString(sum[:16])
}
