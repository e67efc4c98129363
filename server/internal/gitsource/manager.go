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

// Config says where mirrors live and what may be reached.
type Config struct {
	// Dir holds the mirrors. It is made if it is not there, and belongs to one server at a time.
	Dir string
	// Allow lists the transports that may be used, of https, ssh, http and file. None means https
	// and ssh.
	Allow []string
	// Timeout bounds each run of git against a remote, from when it has its turn. Zero means five minutes:
	// a first fetch may be large.
	Timeout time.Duration
	// AtOnce bounds how many remotes are asked at once, for all owners. Zero means 64. An owner that asks
	// none at the time need not wait for the others, up to MostAtOnce; zero means 512.
	AtOnce, MostAtOnce int
	// Memory bounds what one process of git may have, in bytes. Zero means 512 MiB, and at least it is MinMemory.
	Memory int64
	// MaxMirrorBytes bounds the files of one mirror. Zero means 4 GiB.
	MaxMirrorBytes int64
	// MaxOwnerBytes and MaxTotalBytes bound the mirrors of one owner, and all of them. Zero means 16 GiB and
	// 64 GiB.
	MaxOwnerBytes, MaxTotalBytes int64
	// MinFreeBytes is the free space of the disk below which nothing is fetched: the database may be on it.
	// Zero means 1 GiB.
	MinFreeBytes int64
	// MaxWholeBytes is how large the first fetch of a repository may be. Of one that is larger only the
	// folders are fetched, and the contents of files when they are read. Zero means 64 MiB.
	MaxWholeBytes int64
	// MaxReaders bounds the processes that are kept open to read mirrors, of which each may have ReaderMemory. Zero means 64.
	MaxReaders int
	// Addresses says what may be connected to. Nil means the zero policy, with loopback where file is
	// allowed: who may name files of this machine may also name its ports.
	Addresses *egress.Policy
	// AllowPrivate lets Git URLs lead to private networks, this machine and its files also when the server has more than
	// one tenant; see SetShared.
	AllowPrivate bool
	// Resolver finds the addresses of hosts. Nil means that of the system.
	Resolver *net.Resolver
	// RootCAs sign the certificates of web servers. Nil means those of the system.
	RootCAs *x509.CertPool
	// Proxy returns the operator's own proxy for a URL, or nil for none. It is not for ssh. Nil means
	// what HTTPS_PROXY, HTTP_PROXY and NO_PROXY say.
	Proxy func(*url.URL) (*url.URL, error)
	// Log is told of upkeep, of mirrors that had to be made anew, and of what users are not told about
	// repositories that cannot be read. Nil discards.
	Log *slog.Logger
}

// Manager holds the mirrors of all repositories. It is safe for concurrent use.
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
	disk    map[string]diskUse // by the name of the mirror
	growing map[string]growth  // those that are being fetched into
	turns   int64              // of fetches
	closed  bool

	upkeep    chan struct{} // holds a token for each upkeep that is under way
	measured  sync.Once     // what was there before
	evictIdle time.Duration // how long nobody has used what is deleted for others
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
	cfg = cfg.withDefaults()
	for _, transport := range cfg.Allow {
		if !slices.Contains(transports, transport) {
			return nil, fmt.Errorf("%q is not a transport: use %v", transport, transports)
		}
	}
	m := &Manager{cfg: cfg, readers: newReaders(cfg.MaxReaders), budget: newBudget(cfg.AtOnce, cfg.MostAtOnce), mirrors: map[string]*mirror{}, disk: map[string]diskUse{}, growing: map[string]growth{}, evictIdle: evictIdle, upkeep: make(chan struct{}, maxUpkeep)}
	if m.git, err = newGit(cfg); err != nil {
		return nil, err
	}
	if err := m.git.checkLimits(); err != nil {
		cfg.Log.Warn("git runs without a limit of memory", obs.Err(err))
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
	c.AtOnce = cmp.Or(c.AtOnce, defaultAtOnce)
	c.MostAtOnce = cmp.Or(c.MostAtOnce, defaultMostAtOnce)
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

// SetShared says whether the server has more than one tenant. Then private networks, this machine and its files are
// refused, unless they are allowed explicitly: tenants that do not know each other must not look around in the network
// that the server is in, nor on its disk.
func (m *Manager) SetShared(shared bool) {
	if m.shared.Swap(shared) == shared || !shared || m.cfg.AllowPrivate {
		return
	}
	m.web.close() // connections that are kept would be used again
	m.cfg.Log.Warn("the server has more than one tenant: Git URLs may no longer lead to private networks, to this machine or to its files, unless --git-allow-private or --git-allow-cidr says so")
}

// Close ends every process and waits for upkeep. Calls after it fail with ErrClosed.
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

// CheckURL is the function of that name with the transports that this Manager allows.
func (m *Manager) CheckURL(raw string) (string, error) {
	checked, err := CheckURL(raw, m.cfg.Allow)
	if err != nil {
		return "", err
	}
	path, isFile := strings.CutPrefix(checked, "file://")
	switch {
	case isFile && within(path, m.cfg.Dir): // the mirrors of one tenant must not be sources for another
		return "", &URLError{Problem: "the server's own files are no source"}
	case isFile && m.shared.Load() && !m.cfg.AllowPrivate:
		return "", badURL("file:// is not allowed while the server has more than one tenant: the operator of the server allows it with --git-allow-private")
	}
	return checked, nil
}

// checkStored is CheckURL for a URL that was checked when it was stored. Plain http that is no longer
// allowed is an error: the repository of that name behind https may be another one.
func (m *Manager) checkStored(url string) (string, error) {
	checked, err := m.CheckURL(url)
	if err == nil && strings.HasPrefix(strings.ToLower(url), "http://") && !strings.HasPrefix(checked, "http://") {
		return "", badURL("http is not allowed any more: store the URL with https://, or start the server with --git-allow https,ssh,http")
	}
	return checked, err
}

// within reports whether a path is folder or below it, with symbolic links followed.
func within(path, folder string) bool {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	rel, err := filepath.Rel(folder, filepath.Clean(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
