package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/install"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// Config is what a server may be told. Zero fields take their defaults.
type Config struct {
	// Listen is the address of the one port for REST, console, webhooks and agents; default
	// 127.0.0.1:8080.
	Listen string
	// AgentListen, when not empty, is a second port for agents alone.
	AgentListen string
	// MetricsListen is the address of /metrics and a detailed /readyz, in plain text; default none.
	MetricsListen string
	// DataDir holds the SQLite database, the server's keys, its CA and the Git mirrors.
	DataDir string
	// Database is "" or "sqlite" for a file in DataDir, the path of such a file, or the postgres:// URL
	// of a database that several servers may share.
	Database string
	// KeyFile holds the keys that webhook secrets are derived from and credentials are sealed with; see
	// NewKey. Servers that share a database have the same; a server alone makes its own in DataDir.
	KeyFile string
	// ExternalURL is how users and agents reach the server; default: where it listens.
	ExternalURL string
	// TLSCertFile and TLSKeyFile are given together, or not at all: then a listener that is not
	// loopback gets a certificate of the server's own CA, for TLSHosts.
	TLSCertFile, TLSKeyFile string
	TLSHosts                []string
	// TLSCACertFile and TLSCAKeyFile are the own CA, instead of one in DataDir: servers that share a
	// database have the same.
	TLSCACertFile, TLSCAKeyFile string
	// Plaintext allows plain text on a listener that is not loopback.
	Plaintext bool
	// GitPollInterval is the backstop for lost webhooks.
	GitPollInterval time.Duration
	// GitCommitEmail is the address of the author of commits for callers who are not named by one; default
	// kedge@localhost.
	GitCommitEmail string
	// GitAllow lists the transports of Git URLs; default https and ssh, on loopback also http, and file
	// unless ExternalURL names another host.
	GitAllow []string
	// GitAllowCIDRs, GitDenyCIDRs, GitOnlyHosts and GitDenyPrivate bound where Git URLs may lead. Link-local
	// addresses and metadata services are refused in any case, and this machine unless GitAllow has "file".
	GitAllowCIDRs, GitDenyCIDRs, GitOnlyHosts []string
	GitDenyPrivate                            bool
	// GitAllowPrivate lets Git URLs lead to private networks also when the server has more than one tenant.
	GitAllowPrivate bool
	// GitResources bounds what git takes of this machine.
	GitResources GitResources
	// Render says how Kustomize and Helm render.
	Render RenderConfig
	// OIDC lets people log in by an identity provider.
	OIDC OIDCConfig
	// TrustedProxies are ranges of addresses whose X-Forwarded-For says who a request comes from.
	TrustedProxies []string
	// APIRate bounds the requests per second of each API token; default 200, with bursts of twice that.
	APIRate float64
	// Lease is how long an agent may be silent before it is taken for lost.
	Lease time.Duration
	// NewAdminToken makes another admin token, for when all are lost.
	NewAdminToken bool
	// AgentImage is what enrol manifests run. There is no default while Kedge publishes no image: a
	// manifest then names the image that its request names.
	AgentImage string
	// Out gets the few lines that a person wants to see on start; default none.
	Out io.Writer
	Log *slog.Logger

	trustedProxies []netip.Prefix
}

// GitResources bounds what git takes of this machine. Zero fields take their defaults.
type GitResources struct {
	// Processes is how many fetches there are at once, and Memory what a process of git may have, in bytes. The
	// defaults follow from the memory that there is.
	Processes int
	Memory    int64
	// Disk bounds all mirrors, TenantDisk those of one tenant, in bytes; default 64 GiB and 16 GiB. Below MinFree of
	// free space, default 1 GiB, nothing is fetched.
	Disk, TenantDisk, MinFree int64

	readers int // processes that are kept open to read mirrors
}

func (c Config) withDefaults() (Config, error) {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:8080")
	c.GitPollInterval = cmp.Or(c.GitPollInterval, 30*time.Second)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.APIRate = cmp.Or(c.APIRate, 200)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Out == nil {
		c.Out = io.Discard
	}
	if c.DataDir == "" {
		return c, errors.New("no data directory was given: use --data-dir")
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		return c, errors.New("--tls-cert-file and --tls-key-file are given together or not at all")
	}
	if (c.TLSCACertFile == "") != (c.TLSCAKeyFile == "") {
		return c, errors.New("--tls-ca-cert-file and --tls-ca-key-file are given together or not at all")
	}
	if c.ExternalURL != "" {
		u, err := url.Parse(c.ExternalURL)
		if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return c, errors.New("--external-url is not the address of a server, such as https://kedge.example.com, without user, query or fragment") // it may hold a password
		}
		c.ExternalURL = strings.TrimRight(c.ExternalURL, "/")
	}
	if c.AgentImage != "" && install.CheckImage(c.AgentImage) != nil {
		return c, fmt.Errorf("--agent-image: %q is not the name of a container image, such as registry.example.com/kedge-agent:v1", c.AgentImage)
	}
	var err error
	if c.trustedProxies, err = prefixes("--trusted-proxy", c.TrustedProxies); err != nil {
		return c, err
	}
	if len(c.GitAllow) == 0 {
		c.GitAllow = c.defaultGitAllow()
	}
	if c.GitAllowPrivate && c.GitDenyPrivate {
		return c, errors.New("--git-allow-private and --git-deny-private exclude each other")
	}
	for _, transport := range c.GitAllow {
		if !slices.Contains([]string{"https", "ssh", "http", "file"}, transport) {
			return c, fmt.Errorf("--git-allow: %q is not one of https, ssh, http, file", transport)
		}
	}
	return c, nil
}

// defaultGitAllow is https and ssh and, on loopback, http. A server that only this machine reaches also
// reads its files; behind a proxy, loopback is not this machine alone.
func (c Config) defaultGitAllow() []string {
	allow := []string{"https", "ssh"}
	if !c.loopback() {
		return allow
	}
	allow = append(allow, "http")
	external, err := url.Parse(c.ExternalURL)
	if c.ExternalURL == "" || (err == nil && isLoopback(withPort(external))) {
		allow = append(allow, "file")
	}
	return allow
}

// checkShared refuses what several servers on one database could not agree on.
func (c Config) checkShared() error {
	if c.KeyFile == "" {
		return errors.New("servers that share a PostgreSQL database need the same keys: make a file with kedge-server new-key, " +
			"give it to all of them, and name it with --key-file")
	}
	ownCA := c.TLSCertFile == "" && !c.Plaintext && (!c.loopback() || len(c.TLSHosts) > 0)
	if ownCA && c.TLSCACertFile == "" {
		return errors.New("servers that share a PostgreSQL database cannot each have a CA of their own, which agents would have to tell apart: " +
			"give all of them the same with --tls-ca-cert-file and --tls-ca-key-file, or a certificate with --tls-cert-file and --tls-key-file")
	}
	return nil
}

// gitAddresses is where Git URLs may lead.
func (c Config) gitAddresses() (*egress.Policy, error) {
	p := &egress.Policy{AllowLoopback: slices.Contains(c.GitAllow, "file"), DenyPrivate: c.GitDenyPrivate, OnlyHosts: c.GitOnlyHosts}
	for _, list := range []struct {
		flag  string
		texts []string
		into  *[]netip.Prefix
	}{{"--git-allow-cidr", c.GitAllowCIDRs, &p.AllowCIDRs}, {"--git-deny-cidr", c.GitDenyCIDRs, &p.DenyCIDRs}} {
		var err error
		if *list.into, err = prefixes(list.flag, list.texts); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// prefixes reads ranges of addresses.
func prefixes(flag string, texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not a range of addresses such as 10.0.0.0/8", flag, text)
		}
		out = append(out, prefix)
	}
	return out, nil
}

// certHosts are the names of the own CA's certificate: those given, and the one that users and
// agents are told. On loopback the external URL is that of something before this server.
func (c Config) certHosts() []string {
	external, err := url.Parse(c.ExternalURL)
	if err != nil || external.Hostname() == "" || c.loopback() {
		return c.TLSHosts
	}
	return append(slices.Clone(c.TLSHosts), external.Hostname())
}

// loopback reports whether nobody outside this machine can connect.
func (c Config) loopback() bool {
	for _, addr := range []string{c.Listen, c.AgentListen} {
		if addr != "" && !isLoopback(addr) {
			return false
		}
	}
	return true
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}
