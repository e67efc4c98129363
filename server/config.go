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

// Config configures a server. Zero fields take their defaults. It has more than 20 fields because it has one for each flag
// of kedge-server.
type Config struct {
	// Listen is the address for REST, console, webhooks, and agents; default 127.0.0.1:8080.
	Listen string
	// AgentListen, if not empty, is a second address for agents only.
	AgentListen string
	// PrivateListen, if not empty, is the address for other servers that share the database. They reach it at PrivateAddress;
	// default PrivateListen.
	PrivateListen, PrivateAddress string
	// MetricsListen is the address of /metrics and a detailed /readyz, without TLS; default none.
	MetricsListen string
	// DataDir contains the SQLite database, the keys of the server, its CA, and the Git mirrors.
	DataDir string
	// Database is "" or "sqlite" for a file in DataDir, the path of a SQLite file, or the postgres:// URL of a
	// database that several servers may share.
	Database string
	// KeyFile contains the keys that webhook secrets are derived from and credentials are encrypted with; see
	// NewKey. Servers that share a database need the same file; a single server creates its own in DataDir.
	KeyFile string
	// ExternalURL is the URL of the server for users and agents; default: the listen address.
	ExternalURL string
	// TLSCertFile and TLSKeyFile must be set together. Without them, a listener that is not loopback gets a
	// certificate of the server's own CA, for TLSHosts.
	TLSCertFile, TLSKeyFile string
	TLSHosts                []string
	// TLSCACertFile and TLSCAKeyFile are the server's own CA, instead of one in DataDir: servers that share a
	// database need the same CA.
	TLSCACertFile, TLSCAKeyFile string
	// Plaintext allows a listener that is not loopback without TLS.
	Plaintext bool
	// GitPollInterval is the fallback for lost webhooks.
	GitPollInterval time.Duration
	// GitCommitEmail is the author address of commits for callers whose name is not an email address; default
	// kedge@localhost.
	GitCommitEmail string
	// GitAllow lists the transports of Git URLs; default https and ssh, on loopback also http, and file unless
	// ExternalURL has another host.
	GitAllow []string
	// GitAllowCIDRs, GitDenyCIDRs, GitOnlyHosts, and GitDenyPrivate limit the addresses of Git URLs. Link-local
	// addresses and metadata services are always refused, and this machine unless GitAllow has "file".
	GitAllowCIDRs, GitDenyCIDRs, GitOnlyHosts []string
	GitDenyPrivate                            bool
	// GitAllowPrivate allows Git URLs to private networks even if the server has more than one tenant.
	GitAllowPrivate bool
	// GitResources limits the resources of git on this machine.
	GitResources GitResources
	// Render configures the renders of Kustomize and Helm.
	Render RenderConfig
	// OIDC configures logins through an identity provider.
	OIDC OIDCConfig
	// Kubernetes configures the custom resources.
	Kubernetes KubernetesConfig
	// TrustedProxies are address ranges of proxies whose X-Forwarded-For is trusted.
	TrustedProxies []string
	// APIRate limits the requests per second of each API token; default 200, with bursts of twice that.
	APIRate float64
	// Lease is how long an agent may be silent before it counts as disconnected.
	Lease time.Duration
	// NewAdminToken creates another admin token, if all are lost.
	NewAdminToken bool
	// AgentImage is the image in enrollment manifests. There is no default while Kedge publishes no image: then
	// the request for a manifest must contain the image.
	AgentImage string
	// Out gets the lines that a person wants to see at the start; default none.
	Out io.Writer
	Log *slog.Logger

	trustedProxies []netip.Prefix
}

// GitResources limits the resources of git on this machine. Zero fields have defaults.
type GitResources struct {
	// Processes is the number of concurrent fetches, and Memory the memory limit of a git process, in bytes.
	// The defaults depend on the available memory.
	Processes int
	Memory    int64
	// Disk limits all mirrors, TenantDisk those of one tenant, in bytes; default 64 GiB and 16 GiB. With less
	// free space than MinFree, default 1 GiB, the server does not fetch.
	Disk, TenantDisk, MinFree int64

	readers int // open processes that read mirrors
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
		return c, errors.New("the data directory is missing: use --data-dir")
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		return c, errors.New("--tls-cert-file and --tls-key-file must be set together")
	}
	if (c.TLSCACertFile == "") != (c.TLSCAKeyFile == "") {
		return c, errors.New("--tls-ca-cert-file and --tls-ca-key-file must be set together")
	}
	if c.ExternalURL != "" {
		u, err := url.Parse(c.ExternalURL)
		if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return c, errors.New("--external-url is not the address of a server, such as https://kedge.example.com, without user, query or fragment") // it may contain a password
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

// defaultGitAllow returns https and ssh and, on loopback, http. A server that only this machine can reach also
// reads local files; behind a proxy, loopback is not limited to this machine.
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

// checkShared refuses settings on which several servers with one database would differ.
func (c Config) checkShared() error {
	if c.KeyFile == "" {
		return errors.New("servers that share a PostgreSQL database need the same keys: create a file with kedge-server new-key, " +
			"copy it to all of them, and set --key-file")
	}
	ownCA := c.TLSCertFile == "" && !c.Plaintext && (!c.loopback() || len(c.TLSHosts) > 0)
	if ownCA && c.TLSCACertFile == "" {
		return errors.New("servers that share a PostgreSQL database need the same CA: " +
			"set --tls-ca-cert-file and --tls-ca-key-file, or a certificate with --tls-cert-file and --tls-key-file")
	}
	return nil
}

// gitAddresses returns the allowed addresses of Git URLs.
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

// prefixes parses address ranges.
func prefixes(flag string, texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not an address range such as 10.0.0.0/8", flag, text)
		}
		out = append(out, prefix)
	}
	return out, nil
}

// certHosts returns the names in the certificate of the server's own CA: the configured ones, and the one for
// users and agents. On loopback, the external URL is that of a proxy.
func (c Config) certHosts() []string {
	external, err := url.Parse(c.ExternalURL)
	if err != nil || external.Hostname() == "" || c.loopback() {
		return c.TLSHosts
	}
	return append(slices.Clone(c.TLSHosts), external.Hostname())
}

// loopback reports whether only this machine can connect.
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
