package gitsource

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"time"
)

// use is one call's hold on a mirror. While there is one, the mirror is not deleted.
type use struct {
	*mirror
	access Access // with the URL in its one form
	reader string
}

// use returns the mirror of an access, which need not exist on disk yet. The caller ends the use.
func (m *Manager) use(a Access) (*use, error) {
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
		r = m.newMirror(key, notes{Owner: a.Owner, URL: a.URL, Parent: a.parent})
		m.mirrors[key] = r
	}
	r.users++
	if now.Sub(r.touched) > touchEvery {
		if err := touchNotes(r.dir, now); err == nil { // else the next use tries again
			r.touched = now
		}
	}
	return &use{mirror: r, access: a, reader: reader}, nil
}

func (m *Manager) end(r *mirror) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.users--
	r.used = time.Now()
	// Every commit can name other submodules: of those that cannot be fetched nothing is kept.
	if r.users == 0 && r.parent != "" && !r.exists() {
		delete(m.mirrors, r.key())
	}
}

func (m *Manager) newMirror(key string, n notes) *mirror {
	r := newMirror(&m.cfg, m.git, m.readers, n, filepath.Join(m.cfg.Dir, key+mirrorSuffix))
	r.grown = func(size int64) room { return m.grown(r, size) }
	return r
}

// mirrorKey names the folder of what one owner has of one repository. Owners share nothing: not the
// files and not the question whether they are there.
func mirrorKey(owner, url string) string {
	sum := sha256.Sum256([]byte(owner + "\x00" + url))
	return hex.EncodeToString(sum[:16])
}
