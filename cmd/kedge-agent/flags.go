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
	"k8s.io/klog/v2"

	"github.com/kedge-dev/kedge/agent"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/version"
)

const usage = `kedge-agent connects a Kubernetes cluster to a Kedge server.

It dials out and listens for nothing but health checks and metrics (/livez, /readyz, /metrics).
HTTPS_PROXY, HTTP_PROXY and NO_PROXY are honoured.

Exit codes: 0 stopped in order; 1 failed while running; 2 wrong flags or configuration. A server
that cannot be reached or refuses the token does not end the agent: it says why in its log and at
/readyz, and tries again.

Flags:
`

// serviceAccountNamespace is where every pod finds the name of its namespace.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func parseFlags(args []string, stdout, stderr io.Writer) (agent.Config, error) {
	var cfg agent.Config
	var logFormat, budget string
	var showVersion bool
	f := pflag.NewFlagSet("kedge-agent", pflag.ContinueOnError)
	f.SetOutput(stdout)
	f.Usage = func() { fmt.Fprint(stdout, usage, f.FlagUsages()) }
	f.StringVar(&cfg.ServerAddress, "server-address", "", "server: grpcs://host:port, wss://host, or grpc:// and ws:// without TLS")
	f.StringVar(&cfg.TokenFile, "token-file", "", "file with the agent's token; read anew for every connection")
	f.StringVar(&cfg.TokenSecret, "token-secret", "", "Secret in --namespace that the token file is mounted from; a token that the server rotates is kept there (default: in the token file)")
	f.StringVar(&cfg.CAFile, "ca-cert-file", "", "certificate of the server's CA (default: the system's authorities)")
	f.StringVar(&cfg.Kubeconfig, "kubeconfig", "", "how to reach the cluster from outside of it")
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:0", "address for health checks and metrics")
	f.StringVar(&cfg.Namespace, "namespace", defaultNamespace(), "namespace that the agent lives in and keeps its inventory in; no other agent may have it")
	f.StringVar(&cfg.Replica, "replica", defaultReplica(), "name that tells replicas of one agent apart")
	f.StringVar(&budget, "offline-budget", "28Mi", "how much may be kept in Secrets of --namespace for going on without the server; 0 keeps nothing")
	f.StringVar(&cfg.PolicyFile, "policy-file", "", "what the owner of the cluster forbids this agent, whatever the server says; watched; a file that does not exist at the start forbids nothing (see docs/applying.md)")
	f.StringVar(&logFormat, "log-format", obs.FormatJSON, "json or text")
	f.BoolVar(&showVersion, "version", false, "print the version and exit")
	if err := f.Parse(args); err != nil {
		return cfg, err
	}
	if showVersion {
		fmt.Fprintln(stdout, "kedge-agent", version.String())
		return cfg, pflag.ErrHelp // nothing else is to be done
	}
	if f.NArg() > 0 {
		return cfg, fmt.Errorf("unexpected argument %q: kedge-agent takes flags only, see --help", f.Arg(0))
	}
	kept, err := resource.ParseQuantity(budget)
	if err != nil {
		return cfg, fmt.Errorf("--offline-budget %q is not a size such as 16Mi: %w", budget, err)
	}
	cfg.OfflineBudget = int(kept.Value())
	cfg.Proxy = proxyFromEnvironment()
	log, err := obs.NewLogger(stderr, logFormat)
	if err != nil {
		return cfg, err
	}
	cfg.Log = log
	klog.SetSlogLogger(log.With(obs.KeyComponent, "client-go"))
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
