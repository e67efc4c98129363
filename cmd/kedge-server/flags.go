package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server"
)

// databaseEnv is the environment variable for --database. It may contain a password.
const databaseEnv = "KEDGE_DATABASE_URL"

type streams struct {
	in       io.Reader
	out, err io.Writer
}

// command runs a command with parsed flags.
type command func(ctx context.Context) error

// parse parses the command line. The default command is serve.
func parse(args []string, s streams) (command, error) {
	name := "serve"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	commands := map[string]func([]string, streams) (command, error){
		"serve": parseServe, "migrate": parseMigrate, "backup": parseBackup, "restore": parseRestore, "new-key": parseNewKey, "crds": parseDefinitions,
	}
	read, ok := commands[name]
	if !ok {
		return nil, fmt.Errorf("unknown command %q: use serve (the default), migrate, backup, restore, new-key or crds", name)
	}
	return read(args, s)
}

func parseServe(args []string, s streams) (command, error) {
	cfg := server.Config{Out: s.out}
	f := newFlags("serve", "runs the server", s)
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:8080", "address of the REST API, the console, webhooks and agents")
	f.StringVar(&cfg.AgentListen, "agent-listen", "", "second address, for agents only")
	f.StringVar(&cfg.PrivateListen, "private-listen", "", "address for the other servers that share the database, for requests to agents that are connected to this server")
	f.StringVar(&cfg.PrivateAddress, "private-address", "", "address of --private-listen as the other servers reach it (default: the listen address)")
	f.StringVar(&cfg.MetricsListen, "metrics-listen", "127.0.0.1:8081", "address of /metrics and a detailed /readyz, without TLS; \"none\" disables it")
	f.StringVar(&cfg.KeyFile, "key-file", "", "key file of the server, see new-key (default: created in the data directory; required with PostgreSQL)")
	f.StringVar(&cfg.ExternalURL, "external-url", "", "URL of this server for users and agents (default: the listen address)")
	f.StringVar(&cfg.TLSCertFile, "tls-cert-file", "", "TLS certificate (default: on addresses that are not loopback, a certificate of the server's own CA)")
	f.StringVar(&cfg.TLSKeyFile, "tls-key-file", "", "key of the TLS certificate")
	f.StringArrayVar(&cfg.TLSHosts, "tls-host", nil, "name or address in the certificate of the server's own CA (repeatable)")
	f.StringVar(&cfg.TLSCACertFile, "tls-ca-cert-file", "", "certificate of the server's own CA, instead of one in the data directory; servers that share a database need the same CA")
	f.StringVar(&cfg.TLSCAKeyFile, "tls-ca-key-file", "", "key of the server's own CA")
	f.BoolVar(&cfg.Plaintext, "plaintext", false, "allow an address that is not loopback without TLS")
	f.DurationVar(&cfg.GitPollInterval, "git-poll-interval", 30*time.Second, "how often to poll repositories, in case a webhook was lost")
	f.StringVar(&cfg.GitCommitEmail, "git-commit-email", "", "author of commits by kedge image set, for callers whose name is not an email address (default kedge@localhost)")
	f.StringSliceVar(&cfg.GitAllow, "git-allow", nil, "allowed transports of Git URLs (default https,ssh; on loopback also http,file)")
	f.StringSliceVar(&cfg.GitAllowCIDRs, "git-allow-cidr", nil, "address ranges that are always allowed for Git URLs")
	f.StringSliceVar(&cfg.GitDenyCIDRs, "git-deny-cidr", nil, "address ranges that are denied for Git URLs")
	f.StringSliceVar(&cfg.GitOnlyHosts, "git-only-host", nil, "the only allowed hosts of Git URLs, such as github.com or *.example.com")
	f.BoolVar(&cfg.GitDenyPrivate, "git-deny-private", false, "deny Git URLs to private networks")
	f.BoolVar(&cfg.GitAllowPrivate, "git-allow-private", false, "allow Git URLs to private networks, to this machine, and with --git-allow file to its files, even if there is more than one tenant")
	gitFlags(f.FlagSet, &cfg.GitResources)
	renderFlags(f.FlagSet, &cfg.Render)
	oidcFlags(f.FlagSet, &cfg.OIDC)
	f.StringVar(&cfg.Kubernetes.Kubeconfig, "kubeconfig", "", "serve the custom resources of the cluster in this kubeconfig file")
	f.BoolVar(&cfg.Kubernetes.InCluster, "in-cluster", false, "serve the custom resources of the cluster in which the server runs")
	f.StringArrayVar(&cfg.TrustedProxies, "trusted-proxy", nil, "address range of load balancers whose X-Forwarded-For is trusted, such as 10.0.0.0/8 (repeatable)")
	f.Float64Var(&cfg.APIRate, "api-rate", 200, "limit of requests per second of each API token, with bursts of twice that")
	f.DurationVar(&cfg.Lease, "lease", 30*time.Second, "how long an agent may be silent before it counts as disconnected")
	f.StringVar(&cfg.AgentImage, "agent-image", "", "image of the agent in enrollment manifests (default: none, because no image is published)")
	f.BoolVar(&cfg.NewAdminToken, "new-admin-token", false, "create and print another admin token, if the first one was lost")
	db, err := f.read(args)
	if err != nil {
		return nil, err
	}
	cfg.DataDir, cfg.Database, cfg.Log = db.DataDir, db.Database, db.Log
	return func(ctx context.Context) error {
		klog.SetSlogLogger(cfg.Log.With(obs.KeyComponent, "client-go"))
		return server.Run(ctx, cfg)
	}, nil
}

func oidcFlags(f *pflag.FlagSet, o *server.OIDCConfig) {
	f.StringVar(&o.Issuer, "oidc-issuer", "", "URL of the OpenID Connect identity provider for logins (default: API tokens only)")
	f.StringVar(&o.ClientID, "oidc-client-id", "", "client id of this server at the provider; the redirect URL is EXTERNAL-URL/api/v1/auth/callback")
	f.StringVar(&o.ClientSecretFile, "oidc-client-secret-file", "", "file with the client secret, if there is one")
	f.StringSliceVar(&o.Scopes, "oidc-scopes", nil, "scopes to request (default openid,profile,email)")
	f.StringVar(&o.UserClaim, "oidc-user-claim", "", "claim that identifies people in memberships (default email, which the provider must have verified)")
	f.StringVar(&o.GroupsClaim, "oidc-groups-claim", "", "claim that lists groups (default groups)")
	f.StringSliceVar(&o.AdminGroups, "oidc-admin-group", nil, "groups whose members are fleet admins")
	f.DurationVar(&o.SessionTTL, "oidc-session", 0, "how long a login lasts (default 12h)")
}

// flags are the flags of one command, including those that all commands have.
type flags struct {
	*pflag.FlagSet
	streams
	db        server.DatabaseConfig
	urlFile   string
	logFormat string
}

func newFlags(name, does string, s streams) *flags {
	f := &flags{FlagSet: pflag.NewFlagSet("kedge-server "+name, pflag.ContinueOnError), streams: s}
	f.SetOutput(s.out)
	f.Usage = func() {
		fmt.Fprintf(s.out, "kedge-server %s %s.\n\nFlags:\n%s", name, does, f.FlagUsages())
		if name == "serve" {
			fmt.Fprint(s.out, "\nOther commands: migrate, backup, restore, new-key, crds. Use --help with a command for its flags.\n")
		}
	}
	f.StringVar(&f.db.DataDir, "data-dir", defaultDataDir(), "folder of the SQLite database, the keys and the Git mirrors")
	f.StringVar(&f.db.Database, "database", "", "sqlite, the path of a SQLite file, or a postgres:// URL without a password (default: $"+databaseEnv+", or sqlite)")
	f.StringVar(&f.urlFile, "database-url-file", "", "file that contains the postgres:// URL")
	f.StringVar(&f.logFormat, "log-format", "json", "json or text")
	return f
}

func (f *flags) read(args []string) (server.DatabaseConfig, error) {
	if err := f.Parse(args); err != nil {
		return f.db, err
	}
	if f.NArg() > 0 {
		return f.db, fmt.Errorf("unexpected argument %q: see kedge-server --help", f.Arg(0))
	}
	var err error
	if f.db.Database, err = databaseURL(f.db.Database, f.urlFile, os.Getenv(databaseEnv)); err != nil {
		return f.db, err
	}
	if f.db.Log, err = obs.NewLogger(f.err, f.logFormat); err != nil {
		return f.db, err
	}
	return f.db, nil
}

// databaseURL returns the database from a flag, a file or the environment. Every user of a machine can read the
// arguments of its processes.
func databaseURL(flag, file, env string) (string, error) {
	switch {
	case flag != "" && file != "":
		return "", errors.New("--database and --database-url-file exclude each other")
	case file != "":
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("reading --database-url-file: %w", err)
		}
		return strings.TrimSpace(string(text)), nil
	case flag == "":
		return env, nil
	}
	if u, err := url.Parse(flag); err == nil && u.User != nil {
		if _, secret := u.User.Password(); secret {
			return "", errors.New("--database contains a password, which every user of this machine can read: " +
				"store the URL in a file and use --database-url-file, or set $" + databaseEnv)
		}
	}
	return flag, nil
}

func defaultDataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "kedge")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "share", "kedge")
	}
	return "kedge-data"
}
