package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/agent/internal/offlinecache"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/stage"
	"github.com/kedge-dev/kedge/internal/version"
)

// ErrConfig says that the agent was set up wrong.
var ErrConfig = errors.New("configuration")

// Config is what an agent is told.
type Config struct {
	// ServerAddress is grpc://, grpcs://, ws:// or wss:// and a host.
	ServerAddress string
	// TokenFile holds the agent's token. It is read anew for every connection.
	TokenFile string
	// TokenSecret names the Secret in Namespace that TokenFile is mounted from. A token that the
	// server rotates is kept there; "" means in TokenFile.
	TokenSecret string
	// CAFile holds the certificate of the server's CA; "" means the system's authorities.
	CAFile string
	// Kubeconfig is for agents outside of their cluster; "" means the pod's ServiceAccount.
	Kubeconfig string
	// Listen is the address of health and metrics; 127.0.0.1:0 when empty.
	Listen string
	// Namespace is where the agent lives and keeps its inventory.
	Namespace string
	// Replica tells replicas of one agent apart.
	Replica string
	// OfflineBudget is how many bytes are kept in the cluster for when the server is away, at most
	// MaxOfflineBudget; 0 means none.
	OfflineBudget int
	// PolicyFile says what the owner of the cluster forbids, whatever the server says. It is watched; one
	// that does not exist when the agent starts forbids nothing, and "" means that there is none.
	PolicyFile string
	// Proxy chooses an HTTP proxy, as http.ProxyFromEnvironment does; nil means none.
	Proxy func(*http.Request) (*url.URL, error)
	Log   *slog.Logger
}

// MaxOfflineBudget bounds Config.OfflineBudget.
const MaxOfflineBudget = offlinecache.MaxBudget

// Run connects a cluster to a server until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	cfg.Listen = cmp.Or(cfg.Listen, "127.0.0.1:0")
	if err := cfg.check(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	cluster, err := cfg.cluster()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	registry := obs.NewRegistry(version.String())
	metrics, err := link.NewMetrics(registry)
	if err != nil {
		return err
	}
	collectOften()
	limitMemory(cfg.Log, cgroupLimit)
	home := newHome(cfg, cluster)
	tokens, err := newTokens(cfg, cluster)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	rules, err := loadRules(cfg)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	introduction := newIntroduction(cfg, cluster)
	self, err := newReplica(cfg, cluster, home, rules, link.Config{
		Address: cfg.ServerAddress, Tokens: tokens, CAFile: cfg.CAFile, Proxy: cfg.Proxy,
		Hello: introduction.hello, Capabilities: introduction.capabilities, Log: cfg.Log, Metrics: metrics,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	self.watchCluster, self.forgetCluster = introduction.run, introduction.forget
	if err := self.register(registry); err != nil {
		return err
	}
	ready := func(ctx context.Context) error { return home.ready(ctx, self.ready) }
	health, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("listening for health checks: %w", err)
	}
	cfg.Log.Info("agent started", obs.KeyVersion, version.String(), obs.KeyReplica, cfg.Replica, "health", health.Addr().String())
	return stage.Run(ctx,
		stage.Stage{Name: "health", Run: func(ctx context.Context) error { return obs.Serve(ctx, health, obs.Handler(registry, ready)) }},
		stage.Stage{Name: "home", Run: home.run},
		stage.Stage{Name: "policy", Run: rules.run},
		stage.Stage{Name: "replica", Run: self.run},
	)
}

func (c Config) check() error {
	switch {
	case c.ServerAddress == "":
		return errors.New("no server address: give --server-address")
	case c.TokenFile == "":
		return errors.New("no token file: give --token-file")
	case c.Namespace == "":
		return errors.New("no namespace for the inventory: give --namespace")
	case c.Replica == "":
		return errors.New("no name for this replica: give --replica")
	case c.OfflineBudget < 0 || c.OfflineBudget > MaxOfflineBudget:
		return fmt.Errorf("--offline-budget has to be between 0 and %d MiB", MaxOfflineBudget>>20)
	case c.Log == nil:
		return errors.New("no logger")
	}
	if err := link.CheckAddress(c.ServerAddress); err != nil {
		return err
	}
	return c.checkFiles()
}

func (c Config) checkFiles() error {
	policyFolder := ""
	if c.PolicyFile != "" {
		policyFolder = filepath.Dir(c.PolicyFile) // the file itself may come later
	}
	for _, named := range []struct{ what, file string }{
		{"the file of --token-file", c.TokenFile}, {"the file of --ca-cert-file", c.CAFile}, {"the folder of --policy-file", policyFolder},
	} {
		if named.file == "" {
			continue
		}
		if _, err := os.Stat(named.file); err != nil {
			return fmt.Errorf("looking for %s: %w", named.what, err)
		}
	}
	return nil
}

// cluster is how the API server is reached.
func (c Config) cluster() (*rest.Config, error) {
	var cfg *rest.Config
	var err error
	if c.Kubeconfig != "" {
		cfg, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	} else {
		cfg, err = rest.InClusterConfig()
	}
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, errors.New("not in a cluster: give --kubeconfig")
	case err != nil:
		return nil, fmt.Errorf("reading how to reach the cluster: %w", err)
	}
	cfg.UserAgent = "kedge-agent/" + version.String()
	return cfg, nil
}
