package listen

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/obs"
)

// certificates provides the certificate for TLS handshakes.
type certificates interface {
	get(*tls.ClientHelloInfo) (*tls.Certificate, error)
	caPEM() []byte // nil if clients need none
}

// chooseCertificates selects the certificates. A listener that is not loopback uses TLS, unless plain text was
// requested.
func chooseCertificates(cfg Config) (certificates, error) {
	switch {
	case (cfg.CACertFile == "") != (cfg.CAKeyFile == ""):
		return nil, errors.New("a CA needs both a certificate file and a key file")
	case (cfg.CertFile == "") != (cfg.KeyFile == ""):
		return nil, errors.New("a TLS certificate needs both a certificate file and a key file")
	case cfg.CertFile != "":
		return newFileCertificate(cfg.CertFile, cfg.KeyFile, cfg.Log)
	case cfg.Plaintext:
		return nil, nil
	case len(cfg.Hosts) == 0 && isLoopback(cfg.Address) && (cfg.AgentAddress == "" || isLoopback(cfg.AgentAddress)):
		return nil, nil
	case cfg.CACertFile != "":
		return readCA(cfg.CACertFile, cfg.CAKeyFile, cfg.names())
	case cfg.DataDir == "":
		return nil, errors.New("the server's own CA needs a data directory")
	default:
		return openCA(cfg.DataDir, cfg.names())
	}
}

// names returns the names of the server: the configured ones, and the listen addresses, which enrollment
// manifests contain by default.
func (c Config) names() []string {
	names := slices.Clone(c.Hosts)
	for _, address := range []string{c.Address, c.AgentAddress} {
		host, _, err := net.SplitHostPort(address)
		if ip := net.ParseIP(host); err != nil || host == "" || (ip != nil && ip.IsUnspecified()) {
			continue
		}
		names = append(names, host)
	}
	return names
}

// isLoopback reports whether an address is reachable only from this machine. The only loopback name is localhost.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// fileCertificate is a certificate from files. It is reloaded when they change, because certificates are renewed
// while the server runs.
type fileCertificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	version string
	checked time.Time
}

// checkInterval avoids a stat per handshake when a whole fleet reconnects.
const checkInterval = time.Second

func newFileCertificate(certFile, keyFile string, log *slog.Logger) (*fileCertificate, error) {
	f := &fileCertificate{certFile: certFile, keyFile: keyFile, log: log}
	if err := f.reload(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *fileCertificate) caPEM() []byte { return nil }

func (f *fileCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.checked) >= checkInterval {
		if err := f.reload(); err != nil { // files are often only partially written; the old certificate is still valid
			f.log.Warn("reloading the TLS certificate failed, keeping the old one", obs.Err(err))
		}
	}
	return f.current, nil
}

func (f *fileCertificate) reload() error {
	f.checked = time.Now()
	version, err := fileVersion(f.certFile, f.keyFile)
	if err != nil {
		return fmt.Errorf("reading the TLS certificate: %w", err)
	}
	if version == f.version {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err != nil {
		return fmt.Errorf("reading the TLS certificate: %w", err)
	}
	f.current, f.version = &cert, version
	return nil
}

func fileVersion(files ...string) (string, error) {
	version := ""
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			return "", err
		}
		version += fmt.Sprintf("%d/%d;", info.ModTime().UnixNano(), info.Size())
	}
	return version, nil
}
