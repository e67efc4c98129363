package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/stage"
	"github.com/kedge-dev/kedge/internal/version"
	"github.com/kedge-dev/kedge/server/internal/console"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gateway"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/kubeapi"
	"github.com/kedge-dev/kedge/server/internal/listen"
	"github.com/kedge-dev/kedge/server/internal/machine"
	"github.com/kedge-dev/kedge/server/internal/relay"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Run serves until ctx ends, then stops gracefully and returns nil.
func Run(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	if cfg, err = cfg.withMemory(machine.Limit); err != nil {
		return err
	}
	db, err := DatabaseConfig{DataDir: cfg.DataDir, Database: cfg.Database, Log: cfg.Log}.resolve()
	if err != nil {
		return err
	}
	if db.shared() {
		if err := cfg.checkShared(); err != nil {
			return err
		}
	}
	if err := cfg.checkPrivate(db.shared()); err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	if db.shared() { // two servers would damage a shared set of Git mirrors
		db.dirs = []string{cfg.DataDir}
	}
	unlock, err := db.lock()
	if err != nil {
		return err
	}
	defer unlock()
	st, err := db.open(ctx)
	if err != nil {
		return err
	}
	git, err := openGit(cfg)
	if err != nil {
		return errors.Join(err, st.Close())
	}
	return errors.Join(serve(ctx, cfg, db, st, git), git.Close(), st.Close())
}

func serve(ctx context.Context, cfg Config, db database, st store.Store, git *gitsource.Manager) error {
	metrics := obs.NewRegistry(version.String())
	renders, err := openRenderer(ctx, cfg, metrics)
	if err != nil {
		return err
	}
	defer renders.close()
	private, err := openPrivate(cfg) // first: the other servers learn its address
	if err != nil {
		return err
	}
	defer private.close()
	components, err := build(ctx, cfg, parts{db, st, git, renders, private}, metrics)
	if err != nil {
		return err
	}
	// Bind before anything is written: a start that fails because of its port leaves no files. Clients wait
	// until the listener runs.
	listener, err := openListener(cfg, components, metrics)
	if err != nil {
		return err
	}
	monitor, err := openMonitor(cfg, components, metrics)
	if err != nil {
		return err
	}
	defer monitor.close()
	adminToken, err := components.control.Bootstrap(ctx, cfg.NewAdminToken)
	if err != nil {
		return err
	}
	announce(cfg, listener, monitor, adminToken)
	// Stop in reverse: the gateway ends its sessions and writes their last reports while agents are still
	// connected; then the listener has no long streams to wait for.
	stages := []stage.Stage{
		{Name: "metrics", Run: monitor.run},
		{Name: "control", Run: components.control.Work},
		{Name: "relay", Run: components.relay.Run},                                    // records the requests that end with the listener
		{Name: "replicas", Run: components.replicas.serve(private, components.relay)}, // carries requests until their tunnels end
		{Name: "listener", Run: listener.Run},
		{Name: "gateway", Run: components.gateway.Run},
	}
	if components.kubernetes != nil {
		stages = append(stages, stage.Stage{Name: "kubernetes", Run: components.kubernetes.Run})
	}
	return stage.Run(ctx, stages...)
}

// components are created before the server listens.
type components struct {
	key     []byte // of the server
	control *control.Service
	gateway *gateway.Gateway
	relay   *relay.Relay
	renders *renderer
	// replicas reaches the other servers, and serves them.
	replicas replicas
	// kubernetes serves custom resources; nil if there is no API server for them.
	kubernetes *kubeapi.Server
}

func openGit(cfg Config) (*gitsource.Manager, error) {
	addresses, err := cfg.gitAddresses()
	if err != nil {
		return nil, err
	}
	res := cfg.GitResources
	return gitsource.New(gitsource.Config{
		Dir: filepath.Join(cfg.DataDir, "git"), Allow: cfg.GitAllow, Addresses: addresses, AllowPrivate: cfg.GitAllowPrivate, Log: cfg.Log,
		Concurrency: min(res.Processes, usualGitProcesses), MaxConcurrency: res.Processes, Memory: res.Memory, MaxReaders: res.readers,
		MaxTotalBytes: res.Disk, MaxOwnerBytes: res.TenantDisk, MinFreeBytes: res.MinFree,
	})
}

// parts are opened before the components are created.
type parts struct {
	db      database
	store   store.Store
	git     *gitsource.Manager
	renders *renderer
	private private
}

func build(ctx context.Context, cfg Config, p parts, metrics prometheus.Registerer) (components, error) {
	if err := checkKeys(ctx, cfg, p.store); err != nil {
		return components{}, err
	}
	keys, err := loadKeys(cfg)
	if err != nil {
		return components{}, err
	}
	c, err := control.New(control.Config{
		Key: keys.own, Sealer: keys.ring, Version: version.String(), PollInterval: cfg.GitPollInterval, Shared: p.db.shared(), Address: p.private.address,
		Builder: p.renders.builder(p.store), RenderLimits: cfg.Render.limits(), CommitEmail: cfg.GitCommitEmail, Log: cfg.Log, Observe: newPushHistogram(metrics),
	}, p.store, p.git)
	if err != nil {
		return components{}, err
	}
	writers := 1
	if p.db.shared() {
		writers = 8 // half of its connections: PostgreSQL executes independent writes concurrently
	}
	g, err := gateway.New(gateway.Config{
		Lease: cfg.Lease, Writers: writers, ServerID: c.ReplicaID(), Version: version.String(), Log: cfg.Log, Metrics: metrics,
	}, c)
	if err != nil {
		return components{}, err
	}
	replicas, err := newReplicas(p.db.shared(), keys.own, c.ReplicaID())
	if err != nil {
		return components{}, err
	}
	kubernetes, err := newKubernetes(cfg, c)
	return components{
		key: keys.own, control: c, gateway: g, relay: relay.New(relay.Config{Peers: replicas.peers(), ServerID: c.ReplicaID(), Log: cfg.Log}, c, g), renders: p.renders,
		replicas: replicas, kubernetes: kubernetes,
	}, err
}

// openListener binds the port and serves everything on it.
func openListener(cfg Config, r components, metrics *prometheus.Registry) (*listen.Server, error) {
	// The handler needs the address of the server, which is known only after the port is bound.
	var handler http.Handler
	listener, err := listen.New(listen.Config{
		Address: cfg.Listen, AgentAddress: cfg.AgentListen, CertFile: cfg.TLSCertFile, KeyFile: cfg.TLSKeyFile,
		CACertFile: cfg.TLSCACertFile, CAKeyFile: cfg.TLSCAKeyFile, DataDir: cfg.DataDir, Hosts: cfg.certHosts(), Plaintext: cfg.Plaintext, Log: cfg.Log,
	}, listen.Agents{Connect: r.gateway.NewServer(), Tunnel: r.gateway.NewTunnelServer(r.relay)}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { handler.ServeHTTP(w, req) }))
	if err != nil {
		return nil, err
	}
	people, err := newLogin(cfg, r, listener)
	if err != nil {
		return nil, err
	}
	handler = newHandler(cfg, r, metrics, listener, people)
	return listener, nil
}

func newHandler(cfg Config, r components, metrics *prometheus.Registry, listener *listen.Server, people restapi.Login) http.Handler {
	api := restapi.New(restapi.Config{
		ExternalURL:  func() string { return externalURL(cfg, listener) },
		AgentAddress: func() string { return agentAddress(cfg, listener) },
		CAPEM:        listener.CAPEM(),
		DefaultImage: cfg.AgentImage,
		Version:      version.String(),
		Login:        people,
		Kube:         kubeAPI{r.relay},
		PerCaller:    restapi.Rate{PerSecond: cfg.APIRate, Burst: int(2 * cfg.APIRate)},
		Metrics:      metrics,
		Log:          cfg.Log,

		TrustedProxies: cfg.trustedProxies,
	}, r.control)
	mux := http.NewServeMux()
	health := obs.PublicHandler(r.control.Ready)
	mux.Handle("/livez", health)
	mux.Handle("/readyz", health)
	mux.Handle("/metrics", http.NotFoundHandler()) // the console answers every other path
	mux.Handle("/", console.Handler())
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, "/api/") { // the mux would redirect paths of API servers that it can shorten
			api.ServeHTTP(w, req)
			return
		}
		mux.ServeHTTP(w, req)
	})
}
