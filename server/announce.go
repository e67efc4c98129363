package server

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"path/filepath"

	"github.com/kedge-dev/kedge/server/internal/listen"
)

// announce prints information about the start for a person. Programs that start a server parse these lines too:
// do not change their first words.
func announce(cfg Config, listener *listen.Server, metrics *monitor, adminToken string) {
	address := externalURL(cfg, listener)
	fmt.Fprintf(cfg.Out, "address  %s\n", address)
	if adminToken != "" {
		fmt.Fprintf(cfg.Out, "token    %s  (of the fleet admin; shown this once: keep it)\n", adminToken)
		fmt.Fprintf(cfg.Out, "console  %s/#token=%s\n", address, adminToken)
	} else {
		fmt.Fprintf(cfg.Out, "console  %s/\n", address)
	}
	if listener.CAPEM() != nil {
		fmt.Fprintf(cfg.Out, "ca       %s  (for kedge login --ca-file)\n", cmp.Or(cfg.TLSCACertFile, filepath.Join(cfg.DataDir, "ca.pem")))
	}
	if url := metrics.url(); url != "" {
		fmt.Fprintf(cfg.Out, "metrics  %s/metrics\n", url)
	}
	fmt.Fprintf(cfg.Out, "kedge-server is ready\n")
}

// externalURL returns the URL of the server for users.
func externalURL(cfg Config, listener *listen.Server) string {
	if cfg.ExternalURL != "" {
		return cfg.ExternalURL
	}
	scheme := "http"
	if listener.TLS() {
		scheme = "https"
	}
	return scheme + "://" + reachable(cfg, listener.Addr())
}

// agentAddress returns the address of the server for agents, for enrollment manifests.
func agentAddress(cfg Config, listener *listen.Server) string {
	secure, host := listener.TLS(), reachable(cfg, listener.AgentAddr())
	if external, err := url.Parse(cfg.ExternalURL); err == nil && cfg.ExternalURL != "" {
		// A proxy in front of the server may terminate TLS, and its port counts.
		secure = external.Scheme == "https"
		if cfg.AgentListen == "" {
			host = withPort(external)
		} else {
			host = net.JoinHostPort(external.Hostname(), portOf(listener.AgentAddr()))
		}
	}
	if secure {
		return "grpcs://" + host
	}
	return "grpc://" + host
}

func withPort(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Host
	case u.Scheme == "https":
		return net.JoinHostPort(u.Hostname(), "443")
	default:
		return net.JoinHostPort(u.Hostname(), "80")
	}
}

// reachable returns an address that a client can use for a wildcard listener.
func reachable(cfg Config, addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
		if len(cfg.TLSHosts) > 0 {
			host = cfg.TLSHosts[0]
		}
	}
	return net.JoinHostPort(host, port)
}

func portOf(addr net.Addr) string {
	_, port, _ := net.SplitHostPort(addr.String())
	return port
}
