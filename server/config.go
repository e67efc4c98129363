package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/version"
)

// Config is what a server may be told. Zero fields take their defaults.
type Config struct {
	// Listen is the address of the one port for REST, console, webhooks and agents; default
	// 127.0.0.1:8080.
	Listen string
	// AgentListen, when not empty, is a second port for agents alone.
	AgentListen string
	// DataDir holds the database, the server's key, its CA and the Git mirrors.
	DataDir string
	// ExternalURL is how users and agents reach the server; default: where it listens.
	ExternalURL string
	// TLSCertFile and TLSKeyFile are given together, or not at all: then a listener that is not
	// loopback gets a certificate of the server's own CA, for TLSHosts.
	TLSCertFile, TLSKeyFile string
	TLSHosts                []string
	// Plaintext allows plain text on a listener that is not loopback.
	Plaintext bool
	// GitPollInterval is the backstop for lost webhooks.
	GitPollInterval time.Duration
	// GitAllow lists the transports of Git URLs; default https and ssh, and on loopback, without an
	// ExternalURL, also http and file.
	GitAllow []string
	// Lease is how long an agent may be silent before it is taken for lost.
	Lease time.Duration
	// NewAdminToken makes another admin token, for when all are lost.
	NewAdminToken bool
	// AgentImage is what enrol manifests run; default kedge-dev/kedge-agent of the server's version.
	AgentImage string
	// Out gets the few lines that a person wants to see on start; default none.
	Out io.Writer
	Log *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:8080")
	c.GitPollInterval = cmp.Or(c.GitPollInterval, 30*time.Second)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.AgentImage = cmp.Or(c.AgentImage, "kedge-dev/kedge-agent:"+version.String())
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
	if len(c.GitAllow) == 0 {
		c.GitAllow = []string{"https", "ssh"}
		// Behind a proxy, loopback is not this machine alone.
		if c.loopback() && c.ExternalURL == "" {
			c.GitAllow = append(c.GitAllow, "http", "file")
		}
	}
	for _, transport := range c.GitAllow {
		if !slices.Contains([]string{"https", "ssh", "http", "file"}, transport) {
			return c, fmt.Errorf("--git-allow: %q is not one of https, ssh, http, file", transport)
		}
	}
	return c, nil
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
