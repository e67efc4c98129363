package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server"
)

func parseFlags(args []string, stdout, stderr io.Writer) (server.Config, error) {
	cfg := server.Config{Out: stdout}
	var logFormat string
	f := pflag.NewFlagSet("kedge-server", pflag.ContinueOnError)
	f.SetOutput(stdout)
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:8080", "address for REST, console, webhooks and agents")
	f.StringVar(&cfg.AgentListen, "agent-listen", "", "a second address, for agents alone")
	f.StringVar(&cfg.DataDir, "data-dir", defaultDataDir(), "where the database, keys and Git mirrors are kept")
	f.StringVar(&cfg.ExternalURL, "external-url", "", "how users and agents reach this server (default: where it listens)")
	f.StringVar(&cfg.TLSCertFile, "tls-cert-file", "", "certificate; without one, a listener that is not loopback uses the server's own CA")
	f.StringVar(&cfg.TLSKeyFile, "tls-key-file", "", "key of the certificate")
	f.StringArrayVar(&cfg.TLSHosts, "tls-host", nil, "name or address in the certificate of the own CA (repeatable)")
	f.BoolVar(&cfg.Plaintext, "plaintext", false, "allow plain text on a listener that is not loopback")
	f.DurationVar(&cfg.GitPollInterval, "git-poll-interval", 30*time.Second, "how often repositories are asked in case a webhook was lost")
	f.StringSliceVar(&cfg.GitAllow, "git-allow", nil, "transports of Git URLs (default https,ssh; on loopback also http,file)")
	f.DurationVar(&cfg.Lease, "lease", 30*time.Second, "how long an agent may be silent before it is taken for lost")
	f.StringVar(&cfg.AgentImage, "agent-image", "", "image in enrol manifests")
	f.BoolVar(&cfg.NewAdminToken, "new-admin-token", false, "make and print another admin token, for when the first one was lost")
	f.StringVar(&logFormat, "log-format", "json", "json or text")
	if err := f.Parse(args); err != nil {
		return cfg, err
	}
	if f.NArg() > 0 {
		return cfg, fmt.Errorf("unexpected argument %q: kedge-server takes flags only, see --help", f.Arg(0))
	}
	log, err := obs.NewLogger(stderr, logFormat)
	cfg.Log = log
	return cfg, err
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
