package gitsource

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config says where mirrors live and what may be reached.
type Config struct {
	// Dir holds the mirrors. It is made if it is not there, and belongs to one server at a time.
	Dir string
	// Allow lists the transports that may be used, of https, ssh, http and file. None means https
	// and ssh.
	Allow []string
	// Timeout bounds each run of git that reaches a remote. Zero means five minutes: a first fetch
	// may be large.
	Timeout time.Duration
	// Log is told of upkeep and of mirrors that had to be made anew. Nil discards.
	Log *slog.Logger
}

// Manager holds the mirrors of all repositories. It is safe for concurrent use.
type Manager struct {
	cfg Config
	git *git

	background context.Context // ends with Close
	cancel     context.CancelFunc
	work       sync.WaitGroup

	mu      sync.Mutex
	mirrors map[string]*mirror
	closed  bool
}

var transports = []string{"https", "ssh", "http", "file"}

// New returns a manager, which the caller closes. It needs git 2.36 or newer on the PATH.
func New(cfg Config) (*Manager, error) {
	if cfg.Dir == "" {
		return nil, errors.New("no folder is given for mirrors")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("resolving %q: %w", cfg.Dir, err)
	}
	cfg.Dir = dir
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Minute)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if len(cfg.Allow) == 0 {
		cfg.Allow = []string{"https", "ssh"}
	}
	for _, transport := range cfg.Allow {
		if !slices.Contains(transports, transport) {
			return nil, fmt.Errorf("%q is not a transport: use %v", transport, transports)
		}
	}
	g, err := newGit(cfg)
	if err != nil {
		return nil, err
	}
	m := &Manager{cfg: cfg, git: g, mirrors: map[string]*mirror{}}
	m.background, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// Close ends every process and waits for upkeep. Calls after it fail with ErrClosed.
func (m *Manager) Close() error {
	m.mu.Lock()
	m.closed = true
	mirrors := m.mirrors
	m.mirrors = map[string]*mirror{}
	m.mu.Unlock()
	m.cancel()
	m.work.Wait()
	for _, r := range mirrors {
		r.cat.close()
	}
	return nil
}

// mirror returns the mirror of a URL, which need not exist on disk yet.
func (m *Manager) mirror(rawURL string) (*mirror, error) {
	url, err := m.CheckURL(rawURL)
	if err != nil {
		return nil, err
	}
	key := mirrorKey(url, "")
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	r := m.mirrors[key]
	if r == nil {
		r = newMirror(m.git, url, filepath.Join(m.cfg.Dir, key+".git"), m.cfg.Log)
		m.mirrors[key] = r
	}
	return r, nil
}

// mirrorKey is made of the URL and of the credential that it is read with, so that what one
// credential may read is never served to another.
func mirrorKey(url, credential string) string {
	sum := sha256.Sum256([]byte(url + "\x00" + credential))
	return hex.EncodeToString(sum[:16])
}

// CheckURL is the function of that name with the transports that this Manager allows.
func (m *Manager) CheckURL(raw string) (string, error) {
	checked, err := CheckURL(raw, m.cfg.Allow)
	if err != nil {
		return "", err
	}
	// The mirrors of one tenant must not be sources for another.
	if path, ok := strings.CutPrefix(checked, "file://"); ok && within(path, m.cfg.Dir) {
		return "", &URLError{Problem: "the server's own files are no source"}
	}
	return checked, nil
}

// within reports whether a path is folder or below it, with symbolic links followed.
func within(path, folder string) bool {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	rel, err := filepath.Rel(folder, filepath.Clean(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
