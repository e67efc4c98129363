package gitsource

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// Config configures a Manager. All fields but Dir are optional.
type Config struct {
	// Dir is the folder of the mirrors. It is created if needed. Only one server may use it at a time.
	Dir string
	// Allow lists the allowed transports: https, ssh, http and file. The default is https and ssh.
	Allow []string
	// Timeout limits each run of git against a remote, without the wait for a slot. The default is five minutes,
	// because a first fetch may be large.
	Timeout time.Duration
	// Concurrency limits the concurrent runs against remotes of all owners; default 64. An owner that has none
	// need not wait for others, up to MaxConcurrency; default 512.
	Concurrency, MaxConcurrency int
	// Memory limits one git process, in bytes; default 512 MiB, and at least MinMemory.
	Memory int64
	// MaxMirrorBytes limits the files of one mirror; default 4 GiB.
	MaxMirrorBytes int64
	// MaxOwnerBytes and MaxTotalBytes limit the mirrors of one owner, and of all owners; default 16 GiB and 64
	// GiB.
	MaxOwnerBytes, MaxTotalBytes int64
	// MinFreeBytes is the free disk space below which nothing is fetched, because the database may be on the same
	// disk; default 1 GiB.
	MinFreeBytes int64
	// MaxWholeBytes limits the first fetch of a repository. If it is larger, only the folders are fetched, and
	// the contents of files when they are read. The default is 64 MiB.
	MaxWholeBytes int64
	// MaxReaders limits the open processes that read mirrors. Each may use ReaderMemory. The default is 64.
	MaxReaders int
	// Addresses is the policy for connections. The default is the zero policy, with loopback if file is allowed:
	// a user who may read files of this machine may also use its ports.
	Addresses *egress.Policy
	// AllowPrivate allows Git URLs to refer to private networks, this machine and its files even when the server
	// has more than one tenant; see SetShared.
	AllowPrivate bool
	// Resolver resolves host names; default the resolver of the operating system.
	Resolver *net.Resolver
	// RootCAs are the trusted CAs for https; default those of the operating system.
	RootCAs *x509.CertPool
	// Proxy returns the operator's proxy for a URL, or nil for none. It is not used for ssh. The default reads
	// HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
	Proxy func(*url.URL) (*url.URL, error)
	// Log receives messages about maintenance, recreated mirrors, and the details of unreadable repositories that
	// users do not see. The default discards them.
	Log *slog.Logger
}

// Manager manages the mirrors of all repositories. It is safe for concurrent use.
type Manager struct {
	cfg     Config
	git     *git
	dialer  *egress.Dialer
	web     *webTransport
	proxy   *proxy
	readers *readers
	budget  *budget

	background context.Context // ends with Close
	cancel     context.CancelFunc
	work       sync.WaitGroup

	shared  atomic.Bool // see SetShared
	mu      sync.Mutex
	mirrors map[string]*mirror
	disk    map[string]diskUsage // by mirror key
	growing map[string]growth    // fetches in progress, by mirror key
	fetches int64                // number of fetches so far
	closed  bool

	maintenance chan struct{} // one element per maintenance in progress
	measureOnce sync.Once     // for mirrors from before the start
	evictIdle   time.Duration // the constant, except in tests
}

var transports = []string{"https", "ssh", "http", "file"}

// New returns a manager. The caller closes it. It requires git 2.36 or later in the PATH.
func New(cfg Config) (*Manager, error) {
	if cfg.Dir == "" {
		return nil, errors.New("the folder for mirrors is missing")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("resolving %q: %w", cfg.Dir, err)
	}
	cfg.Dir = dir
	cfg = cfg.withDefaults()
	for _, transport := range cfg.Allow {
		if !slices.Contains(transports, transport) {
			return nil, fmt.Errorf("%q is not a transport: use any of %v", transport, transports)
		}
	}
	m := &Manager{cfg: cfg, readers: newReaders(cfg.MaxReaders), budget: newBudget(cfg.Concurrency, cfg.MaxConcurrency), mirrors: map[string]*mirror{}, disk: map[string]diskUsage{}, growing: map[string]growth{}, evictIdle: evictIdle, maintenance: make(chan struct{}, maxMaintenance)}
	if m.git, err = newGit(cfg); err != nil {
		return nil, err
	}
	if err := m.git.checkLimits(); err != nil {
		cfg.Log.Warn("git runs without a memory limit", obs.Err(err))
	}
	m.dialer = &egress.Dialer{Policy: *cfg.Addresses, Resolver: cfg.Resolver}
	if !cfg.AllowPrivate {
		m.dialer.Policy.DenyPrivateNow = m.shared.Load
	}
	m.dialer.Policy.HideLoopback = m.shared.Load
	m.web = newWebTransport(m.dialer, cfg.RootCAs, cfg.Proxy)
	if m.proxy, err = newProxy(m.web, &m.dialer.Policy); err != nil {
		return nil, err
	}
	m.background, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 5*time.Minute)
	c.MaxMirrorBytes = cmp.Or(c.MaxMirrorBytes, 4<<30)
	c.MaxOwnerBytes = cmp.Or(c.MaxOwnerBytes, 16<<30)
	c.MaxTotalBytes = cmp.Or(c.MaxTotalBytes, 64<<30)
	c.MinFreeBytes = cmp.Or(c.MinFreeBytes, 1<<30)
	c.MaxWholeBytes = cmp.Or(c.MaxWholeBytes, 64<<20)
	c.MaxReaders = cmp.Or(c.MaxReaders, 64)
	c.Concurrency = cmp.Or(c.Concurrency, defaultConcurrency)
	c.MaxConcurrency = cmp.Or(c.MaxConcurrency, defaultMaxConcurrency)
	c.Memory = max(cmp.Or(c.Memory, defaultMemory), MinMemory)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if len(c.Allow) == 0 {
		c.Allow = []string{"https", "ssh"}
	}
	if c.Addresses == nil {
		c.Addresses = &egress.Policy{AllowLoopback: slices.Contains(c.Allow, "file")}
	}
	if c.Proxy == nil {
		c.Proxy = httpproxy.FromEnvironment().ProxyFunc()
	}
	return c
}

// SetShared sets whether the server has more than one tenant. If so, Git URLs must not refer to private networks,
// this machine or its files, unless they are allowed explicitly. Tenants that do not know each other must not
// explore the network or the disk of the server.
func (m *Manager) SetShared(shared bool) {
	if m.shared.Swap(shared) == shared || !shared || m.cfg.AllowPrivate {
		return
	}
	m.web.close() // idle connections would be reused
	m.cfg.Log.Warn("the server has more than one tenant: it denies Git URLs to private networks, this machine and its files, unless --git-allow-private or --git-allow-cidr allows them")
}

// Close stops all processes and waits for maintenance. Later calls return ErrClosed.
func (m *Manager) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mirrors = map[string]*mirror{}
	m.mu.Unlock()
	m.cancel()
	m.work.Wait()
	m.readers.close()
	err := m.proxy.close()
	m.web.close()
	return err
}

// CheckURL calls the function CheckURL with the allowed transports of this Manager.
func (m *Manager) CheckURL(raw string) (string, error) {
	checked, err := CheckURL(raw, m.cfg.Allow)
	if err != nil {
		return "", err
	}
	path, isFile := strings.CutPrefix(checked, "file://")
	switch {
	case isFile && within(path, m.cfg.Dir): // a mirror of one tenant must not be a source for another
		return "", &URLError{Problem: "files of the server itself cannot be a repository"}
	case isFile && m.shared.Load() && !m.cfg.AllowPrivate:
		return "", badURL("file:// is not allowed while the server has more than one tenant: the operator of the server can allow it with --git-allow-private")
	}
	return checked, nil
}

// checkStored is CheckURL for a URL that was valid when it was stored. It returns an error for plain http that is
// no longer allowed, because the repository behind https may be another one.
func (m *Manager) checkStored(url string) (string, error) {
	checked, err := m.CheckURL(url)
	if err == nil && strings.HasPrefix(strings.ToLower(url), "http://") && !strings.HasPrefix(checked, "http://") {
		return "", badURL("http is no longer allowed: store the URL with https://, or start the server with --git-allow https,ssh,http")
	}
	return checked, err
}

// within reports whether a path is folder or below it, after resolving symbolic links.
func within(path, folder string) bool {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	rel, err := filepath.Rel(folder, filepath.Clean(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
