package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/stage"
	"github.com/kedge-dev/kedge/internal/version"
	"github.com/kedge-dev/kedge/server/internal/console"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gateway"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/listen"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
)

// Run serves until ctx ends, then stops in order. It returns nil after an orderly stop.
func Run(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	unlock, err := lockDir(cfg.DataDir)
	if err != nil {
		return err
	}
	defer unlock()
	st, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(cfg.DataDir, "kedge.db"), Log: cfg.Log})
	if err != nil {
		return err
	}
	git, err := gitsource.New(gitsource.Config{Dir: filepath.Join(cfg.DataDir, "git"), Allow: cfg.GitAllow, Log: cfg.Log})
	if err != nil {
		return errors.Join(err, st.Close())
	}
	return errors.Join(serve(ctx, cfg, st, git), git.Close(), st.Close())
}

func serve(ctx context.Context, cfg Config, st store.Store, git *gitsource.Manager) error {
	metrics := obs.NewRegistry(version.String())
	rooms, err := build(cfg, st, git, metrics)
	if err != nil {
		return err
	}
	// Bound before anything is written: a start that fails for its port leaves no trace. Clients wait
	// until the listener runs.
	door, err := openDoor(cfg, rooms, metrics)
	if err != nil {
		return err
	}
	adminToken, err := rooms.control.Bootstrap(ctx, cfg.NewAdminToken)
	if err != nil {
		return err
	}
	announce(cfg, door, adminToken)
	// Stopped in reverse: the gateway says goodbye to agents and writes what they last said while
	// they can still be reached, then the listener has no long streams to wait for.
	return stage.Run(ctx,
		stage.Stage{Name: "control", Run: rooms.control.Run},
		stage.Stage{Name: "listener", Run: door.Run},
		stage.Stage{Name: "gateway", Run: rooms.gateway.Run},
	)
}

// rooms are what is built before any door is open.
type rooms struct {
	control *control.Service
	gateway *gateway.Gateway
}

func build(cfg Config, st store.Store, git *gitsource.Manager, metrics prometheus.Registerer) (rooms, error) {
	key, err := loadKey(cfg.DataDir)
	if err != nil {
		return rooms{}, err
	}
	pushed := newPushHistogram(metrics)
	c, err := control.New(control.Config{
		Key: key, Version: version.String(), PollInterval: cfg.GitPollInterval, Log: cfg.Log, Observe: pushed,
	}, st, git)
	if err != nil {
		return rooms{}, err
	}
	g, err := gateway.New(gateway.Config{Lease: cfg.Lease, Version: version.String(), Log: cfg.Log, Metrics: metrics}, c)
	return rooms{control: c, gateway: g}, err
}

// openDoor binds the port and puts everything behind it.
func openDoor(cfg Config, r rooms, metrics *prometheus.Registry) (*listen.Server, error) {
	// The handler needs to know where it is reached, which is known only when the port is bound.
	var handler http.Handler
	door, err := listen.New(listen.Config{
		Address: cfg.Listen, AgentAddress: cfg.AgentListen, CertFile: cfg.TLSCertFile, KeyFile: cfg.TLSKeyFile,
		DataDir: cfg.DataDir, Hosts: cfg.certHosts(), Plaintext: cfg.Plaintext, Log: cfg.Log,
	}, r.gateway.NewServer(), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { handler.ServeHTTP(w, req) }))
	if err != nil {
		return nil, err
	}
	handler = newHandler(cfg, r, metrics, door)
	return door, nil
}

func newHandler(cfg Config, r rooms, metrics *prometheus.Registry, door *listen.Server) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/api/", restapi.New(restapi.Config{
		ExternalURL:  func() string { return externalURL(cfg, door) },
		AgentAddress: func() string { return agentAddress(cfg, door) },
		CAPEM:        door.CAPEM(),
		DefaultImage: cfg.AgentImage,
		Version:      version.String(),
		Log:          cfg.Log,
	}, r.control))
	health := obs.Handler(metrics, r.control.Ready)
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		mux.Handle(path, health)
	}
	mux.Handle("/", console.Handler())
	return mux
}
