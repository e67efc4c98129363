package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/net/http/httpproxy"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kedge-dev/kedge/agent"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/version"
)

const usage = `kedge-agent connects a Kubernetes cluster to a Kedge server.

It connects to the server and listens only for health checks and metrics (/livez, /readyz, /metrics).
HTTPS_PROXY, HTTP_PROXY and NO_PROXY are supported.

Exit codes: 0 orderly stop; 1 failure; 2 wrong flags or configuration. The agent does not exit when it
cannot reach the server or when the server refuses the token. It reports the reason in its log and at
/readyz, and retries.

Flags:
`

// serviceAccountNamespace is the file with the namespace of a pod.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func parseFlags(args []string, stdout, stderr io.Writer) (agent.Config, error) {
	var cfg agent.Config
	var logFormat, budget string
	var showVersion bool
	f := pflag.NewFlagSet("kedge-agent", pflag.ContinueOnError)
	f.SetOutput(stdout)
	f.Usage = func() { fmt.Fprint(stdout, usage, f.FlagUsages()) }
	f.StringVar(&cfg.ServerAddress, "server-address", "", "address of the server: grpcs://host:port or wss://host, or grpc:// and ws:// without TLS")
	f.StringVar(&cfg.TokenFile, "token-file", "", "file with the agent's token; read for every connection")
	f.StringVar(&cfg.TokenSecret, "token-secret", "", "Secret in --namespace from which the token file is mounted; rotated tokens are stored there (default: in the token file)")
	f.StringVar(&cfg.CAFile, "ca-cert-file", "", "certificate of the server's CA (default: the authorities of the system)")
	f.StringVar(&cfg.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster, for an agent that runs outside of it")
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:0", "address for health checks and metrics")
	f.StringVar(&cfg.Namespace, "namespace", defaultNamespace(), "namespace of the agent and its inventory; not shared with other agents")
	f.StringVar(&cfg.ArgoCDNamespace, "argocd-namespace", "", "namespace of an Argo CD that fetches and applies (default: the agent applies by itself)")
	f.StringVar(&cfg.Replica, "replica", defaultReplica(), "name of this replica, unique within the agent")
	f.StringVar(&budget, "offline-budget", "28Mi", "size of the offline cache in Secrets of --namespace, for times without the server; 0 disables it")
	f.BoolVar(&cfg.Tunnel, "tunnel", cfg.Tunnel, "let people use the cluster through the server, for example with kubectl; the RBAC of the cluster decides what they may do")
	f.StringVar(&cfg.PolicyFile, "policy-file", "", "policy of the cluster's owner, which the server cannot override; changes take effect immediately; a file that does not exist at the start restricts nothing (see docs/applying.md)")
	f.StringVar(&logFormat, "log-format", obs.FormatJSON, "json or text")
	f.BoolVar(&showVersion, "version", false, "print the version and exit")
	if err := f.Parse(args); err != nil {
		return cfg, err
	}
	if showVersion {
		fmt.Fprintln(stdout, "kedge-agent", version.String())
		return cfg, pflag.ErrHelp // exit without an error
	}
	if f.NArg() > 0 {
		return cfg, fmt.Errorf("unexpected argument %q: kedge-agent accepts only flags, see --help", f.Arg(0))
	}
	size, err := resource.ParseQuantity(budget)
	if err != nil {
		return cfg, fmt.Errorf("--offline-budget %q is not a size such as 16Mi: %w", budget, err)
	}
	cfg.OfflineBudget = int(size.Value())
	cfg.Proxy = proxyFromEnvironment()
	log, err := obs.NewLogger(stderr, logFormat)
	if err != nil {
		return cfg, err
	}
	cfg.Log = log
	return cfg, nil
}

func proxyFromEnvironment() func(*http.Request) (*url.URL, error) {
	choose := httpproxy.FromEnvironment().ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return choose(r.URL) }
}

func defaultNamespace() string {
	own, err := os.ReadFile(serviceAccountNamespace)
	if err != nil {
		own = nil // not in a pod
	}
	return cmp.Or(os.Getenv("POD_NAMESPACE"), strings.TrimSpace(string(own)), "kedge-agent")
}

func defaultReplica() string {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	return cmp.Or(os.Getenv("POD_NAME"), host, "unnamed")
}
