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

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin"
	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/agent/internal/offlinecache"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/stage"
	"github.com/kedge-dev/kedge/internal/version"
)

// ErrConfig means that the configuration of the agent is wrong.
var ErrConfig = errors.New("configuration")

// Config is the configuration of an agent.
type Config struct {
	// ServerAddress is grpc://, grpcs://, ws:// or wss:// and a host.
	ServerAddress string
	// TokenFile contains the agent's token. It is read for every connection.
	TokenFile string
	// TokenSecret is the Secret in Namespace from which TokenFile is mounted. Rotated tokens are stored there; "" means in
	// TokenFile.
	TokenSecret string
	// CAFile contains the certificate of the server's CA; "" means the authorities of the system.
	CAFile string
	// Kubeconfig is for agents outside of their cluster; "" means the ServiceAccount of the pod.
	Kubeconfig string
	// Listen is the address for health checks and metrics; "" means 127.0.0.1:0.
	Listen string
	// Namespace is the namespace of the agent and its inventory.
	Namespace string
	// ArgoCDNamespace is the namespace of an Argo CD that fetches and applies; "" means that the agent applies by itself.
	ArgoCDNamespace string
	// Replica is the name of this replica, unique within the agent.
	Replica string
	// Tunnel lets people use the cluster through the server, as users that RBAC of the cluster authorizes.
	Tunnel bool
	// OfflineBudget is the size of the offline cache in bytes, at most MaxOfflineBudget; 0 disables it.
	OfflineBudget int
	// PolicyFile is the cluster owner's policy, which the server cannot override; "" means none. The agent watches the
	// file. A file that does not exist when the agent starts restricts nothing.
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
	engineMetrics, err := builtin.NewMetrics(registry)
	if err != nil {
		return err
	}
	setGCPercent()
	limitMemory(cfg.Log, cgroupLimit)
	namespace := newNamespaceCheck(cfg, cluster)
	tokens, err := newTokens(cfg, cluster)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	policy, err := loadPolicy(cfg)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	info := newClusterInfo(cfg, cluster)
	common := link.Config{
		Address: cfg.ServerAddress, Tokens: tokens, CAFile: cfg.CAFile, Proxy: cfg.Proxy,
		Hello: info.hello, Capabilities: info.capabilities, Log: cfg.Log, Metrics: metrics,
	}
	tunnel, err := newTunnel(cfg, cluster, policy)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if tunnel != nil {
		common.Tunnels = link.NewTunnels(tunnel.Serve)
	}
	self, err := newReplica(cfg, cluster, parts{namespace: namespace, policy: policy, info: info, metrics: engineMetrics}, common)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := self.register(registry); err != nil {
		return err
	}
	ready := func(ctx context.Context) error { return namespace.ready(ctx, self.ready) }
	health, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("listening for health checks: %w", err)
	}
	cfg.Log.Info("agent started", obs.KeyVersion, version.String(), obs.KeyReplica, cfg.Replica, "health", health.Addr().String())
	return stage.Run(ctx,
		stage.Stage{Name: "health", Run: func(ctx context.Context) error { return obs.Serve(ctx, health, obs.Handler(registry, ready)) }},
		stage.Stage{Name: "namespace", Run: namespace.run},
		stage.Stage{Name: "policy", Run: policy.run},
		stage.Stage{Name: "tunnel", Run: tunnel.run},
		stage.Stage{Name: "replica", Run: self.run},
	)
}

func (c Config) check() error {
	switch {
	case c.ServerAddress == "":
		return errors.New("no server address: set --server-address")
	case c.TokenFile == "":
		return errors.New("no token file: set --token-file")
	case c.Namespace == "":
		return errors.New("no namespace for the inventory: set --namespace")
	case c.ArgoCDNamespace == c.Namespace:
		return errors.New("the agent and Argo CD need different namespaces: change --namespace or --argocd-namespace")
	case c.Replica == "":
		return errors.New("no name for this replica: set --replica")
	case c.OfflineBudget < 0 || c.OfflineBudget > MaxOfflineBudget:
		return fmt.Errorf("--offline-budget must be between 0 and %d MiB", MaxOfflineBudget>>20)
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
		policyFolder = filepath.Dir(c.PolicyFile) // the file itself may be created later
	}
	for _, named := range []struct{ what, file string }{
		{"the file of --token-file", c.TokenFile}, {"the file of --ca-cert-file", c.CAFile}, {"the folder of --policy-file", policyFolder},
	} {
		if named.file == "" {
			continue
		}
		if _, err := os.Stat(named.file); err != nil {
			return fmt.Errorf("checking %s: %w", named.what, err)
		}
	}
	return nil
}

// cluster returns the configuration of the client for the API server.
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
		return nil, errors.New("not in a cluster: set --kubeconfig")
	case err != nil:
		return nil, fmt.Errorf("reading the configuration of the cluster: %w", err)
	}
	cfg.UserAgent = "kedge-agent/" + version.String()
	return cfg, nil
}
