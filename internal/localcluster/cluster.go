package localcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// startTimeout limits one start. A start takes about five seconds on an idle machine with two cores; the rest
// is for busy machines.
const startTimeout = 2 * time.Minute

// Config is the configuration of a cluster.
type Config struct {
	// BinDir is the folder of the programs, as built by hack/kube/build.sh.
	BinDir string
	// Name of the cluster, of its context in the kubeconfig, and of its folder; default "local".
	Name string
	// Dir is the parent of the folder of the cluster; default the temporary folder of the system.
	Dir string
	// Nodes is the number of simulated nodes; default 1.
	Nodes int
	// Log gets errors after the start; may be nil.
	Log *slog.Logger
	// Progress gets short texts about what the start waits for; may be nil.
	Progress func(string)
}

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, "local")
	c.Nodes = cmp.Or(c.Nodes, 1)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	return c
}

// Cluster is a running control plane. Its methods are safe for concurrent use.
type Cluster struct {
	cfg   Config
	dir   string
	port  int
	pki   *pki
	group *group
	api   *apiClient
	stop  func() error
}

// Start starts a cluster and returns when it is usable: nodes are Ready, and the default namespace has its
// ServiceAccount. ctx limits only the start. The cluster runs until Stop, or until this process ends for any
// reason.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg = cfg.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	// Another program may use the free port before the API server does. A listener cannot be passed to it, so
	// such a start is repeated.
	for {
		c, err := start(ctx, cfg)
		if errors.Is(err, errPortTaken) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("starting cluster %q: %w", cfg.Name, err)
		}
		return c, nil
	}
}

func start(ctx context.Context, cfg Config) (*Cluster, error) {
	c, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"the API server", c.startAPIServer},
		{"controllers", c.startControllers},
		{"nodes", c.startNodes},
	} {
		cfg.Progress("starting " + step.name)
		if err := step.run(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("starting %s: %w", step.name, err), c.Stop())
		}
	}
	return c, nil
}

// prepare creates everything that needs no running program: folder, keys, process group.
func prepare(cfg Config) (*Cluster, error) {
	dir, err := makeDir(cfg)
	if err != nil {
		return nil, err
	}
	c := &Cluster{cfg: cfg, dir: dir}
	c.stop = sync.OnceValue(c.tearDown)
	// The group comes first: from here on the watchdog removes the folder too.
	if c.group, err = newGroup(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if c.port, err = freePort(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	if err := c.writeFiles(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func makeDir(cfg Config) (string, error) {
	if cfg.Dir != "" {
		if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
			return "", fmt.Errorf("making the folder of cluster %q: %w", cfg.Name, err)
		}
	}
	dir, err := os.MkdirTemp(cfg.Dir, "kedge-"+cfg.Name+"-")
	if err != nil {
		return "", fmt.Errorf("making the folder of cluster %q: %w", cfg.Name, err)
	}
	return filepath.Abs(dir)
}

// Name returns the name of the cluster.
func (c *Cluster) Name() string { return c.cfg.Name }

// Kubeconfig returns the path of a kubeconfig for a cluster administrator. The credentials are
// inside the file, so that it may be copied.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, adminUser.file) }

// URL returns the address of the API server.
func (c *Cluster) URL() string { return fmt.Sprintf("https://127.0.0.1:%d", c.port) }

// CAFile returns the path of the CA certificate of the API server.
func (c *Cluster) CAFile() string { return filepath.Join(c.dir, caFile) }

// AuditLog returns the path of the audit log of the API server: one JSON event per line for each read or write,
// except those of the control plane itself.
func (c *Cluster) AuditLog() string { return filepath.Join(c.dir, "audit.log") }

// Stop stops the cluster and removes its files. Later calls return the result of the first.
func (c *Cluster) Stop() error { return c.stop() }

func (c *Cluster) tearDown() error {
	if c.api != nil {
		c.api.close()
	}
	err := c.group.stop()
	// The watchdog has removed the folder already; this call reports if it could not.
	if rmErr := os.RemoveAll(c.dir); rmErr != nil {
		err = errors.Join(err, fmt.Errorf("removing the folder of cluster %q: %w", c.cfg.Name, rmErr))
	}
	return err
}
