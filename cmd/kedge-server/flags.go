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

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server"
)

// databaseEnv may hold what --database does, and a password with it.
const databaseEnv = "KEDGE_DATABASE_URL"

type streams struct {
	in       io.Reader
	out, err io.Writer
}

// command is what was asked for, with its flags read.
type command func(ctx context.Context) error

// parse finds the command among args; without a word before the flags it is to serve.
func parse(args []string, s streams) (command, error) {
	name := "serve"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	commands := map[string]func([]string, streams) (command, error){
		"serve": parseServe, "migrate": parseMigrate, "backup": parseBackup, "restore": parseRestore, "new-key": parseNewKey,
	}
	read, ok := commands[name]
	if !ok {
		return nil, fmt.Errorf("%q is no command: there are serve (the default), migrate, backup, restore and new-key", name)
	}
	return read(args, s)
}

func parseServe(args []string, s streams) (command, error) {
	cfg := server.Config{Out: s.out}
	f := newFlags("serve", "holds what should run where", s)
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:8080", "address for REST, console, webhooks and agents")
	f.StringVar(&cfg.AgentListen, "agent-listen", "", "a second address, for agents alone")
	f.StringVar(&cfg.MetricsListen, "metrics-listen", "127.0.0.1:8081", "address for /metrics and a detailed /readyz, in plain text; none for no such address")
	f.StringVar(&cfg.KeyFile, "key-file", "", "keys of the server, see new-key (default: made in the data directory; needed with PostgreSQL)")
	f.StringVar(&cfg.ExternalURL, "external-url", "", "how users and agents reach this server (default: where it listens)")
	f.StringVar(&cfg.TLSCertFile, "tls-cert-file", "", "certificate; without one, a listener that is not loopback uses the server's own CA")
	f.StringVar(&cfg.TLSKeyFile, "tls-key-file", "", "key of the certificate")
	f.StringArrayVar(&cfg.TLSHosts, "tls-host", nil, "name or address in the certificate of the own CA (repeatable)")
	f.StringVar(&cfg.TLSCACertFile, "tls-ca-cert-file", "", "own CA, instead of one in the data directory: servers that share a database have the same")
	f.StringVar(&cfg.TLSCAKeyFile, "tls-ca-key-file", "", "key of the own CA")
	f.BoolVar(&cfg.Plaintext, "plaintext", false, "allow plain text on a listener that is not loopback")
	f.DurationVar(&cfg.GitPollInterval, "git-poll-interval", 30*time.Second, "how often repositories are asked in case a webhook was lost")
	f.StringVar(&cfg.GitCommitEmail, "git-commit-email", "", "author of commits of kedge image set for callers who are not named by an address (default kedge@localhost)")
	f.StringSliceVar(&cfg.GitAllow, "git-allow", nil, "transports of Git URLs (default https,ssh; on loopback also http,file)")
	f.StringSliceVar(&cfg.GitAllowCIDRs, "git-allow-cidr", nil, "addresses that Git URLs may lead to whatever they are")
	f.StringSliceVar(&cfg.GitDenyCIDRs, "git-deny-cidr", nil, "addresses that Git URLs may not lead to")
	f.StringSliceVar(&cfg.GitOnlyHosts, "git-only-host", nil, "the only hosts of Git URLs, such as github.com or *.example.com")
	f.BoolVar(&cfg.GitDenyPrivate, "git-deny-private", false, "refuse Git URLs that lead to private networks")
	f.BoolVar(&cfg.GitAllowPrivate, "git-allow-private", false, "allow Git URLs that lead to private networks, and to this machine and its files where --git-allow has file, also when there is more than one tenant")
	gitFlags(f.FlagSet, &cfg.GitResources)
	renderFlags(f.FlagSet, &cfg.Render)
	oidcFlags(f.FlagSet, &cfg.OIDC)
	f.StringArrayVar(&cfg.TrustedProxies, "trusted-proxy", nil, "addresses of load balancers, such as 10.0.0.0/8, whose X-Forwarded-For is believed (repeatable)")
	f.Float64Var(&cfg.APIRate, "api-rate", 200, "most requests per second of each API token, with bursts of twice that")
	f.DurationVar(&cfg.Lease, "lease", 30*time.Second, "how long an agent may be silent before it is taken for lost")
	f.StringVar(&cfg.AgentImage, "agent-image", "", "image of the agent in enrol manifests (default: none, as none is published)")
	f.BoolVar(&cfg.NewAdminToken, "new-admin-token", false, "make and print another admin token, for when the first one was lost")
	db, err := f.read(args)
	if err != nil {
		return nil, err
	}
	cfg.DataDir, cfg.Database, cfg.Log = db.DataDir, db.Database, db.Log
	return func(ctx context.Context) error { return server.Run(ctx, cfg) }, nil
}

func oidcFlags(f *pflag.FlagSet, o *server.OIDCConfig) {
	f.StringVar(&o.Issuer, "oidc-issuer", "", "URL of the identity provider that people log in with (default: API tokens only)")
	f.StringVar(&o.ClientID, "oidc-client-id", "", "what the provider knows this server by; its redirect URL is EXTERNAL-URL/api/v1/auth/callback")
	f.StringVar(&o.ClientSecretFile, "oidc-client-secret-file", "", "file with the secret of that client, if it has one")
	f.StringSliceVar(&o.Scopes, "oidc-scopes", nil, "scopes to ask for (default openid,profile,email)")
	f.StringVar(&o.UserClaim, "oidc-user-claim", "", "claim that memberships name people by (default email, which the provider has to have verified)")
	f.StringVar(&o.GroupsClaim, "oidc-groups-claim", "", "claim that lists groups (default groups)")
	f.StringSliceVar(&o.AdminGroups, "oidc-admin-group", nil, "groups whose people are fleet admins")
	f.DurationVar(&o.SessionTTL, "oidc-session", 0, "how long a login lasts (default 12h)")
}

// flags are those of one command, with what all have in common.
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
			fmt.Fprint(s.out, "\nOther commands: migrate, backup, restore, new-key; each has --help.\n")
		}
	}
	f.StringVar(&f.db.DataDir, "data-dir", defaultDataDir(), "where the SQLite database, keys and Git mirrors are kept")
	f.StringVar(&f.db.Database, "database", "", "sqlite, the path of a SQLite file, or a postgres:// URL without a password (default: sqlite, or $"+databaseEnv+")")
	f.StringVar(&f.urlFile, "database-url-file", "", "file that holds the postgres:// URL")
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
	f.db.Log, err = obs.NewLogger(f.err, f.logFormat)
	return f.db, err
}

// databaseURL chooses between the places where a database may be named. Everybody on a machine can read
// the arguments of its programs.
func databaseURL(flag, file, env string) (string, error) {
	switch {
	case flag != "" && file != "":
		return "", errors.New("--database and --database-url-file name two databases")
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
			return "", errors.New("--database holds a password, which everybody on this machine can read: " +
				"put the URL into a file and name it with --database-url-file, or set $" + databaseEnv)
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
