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

// certificates is where the certificate of a TLS handshake comes from.
type certificates interface {
	get(*tls.ClientHelloInfo) (*tls.Certificate, error)
	caPEM() []byte // nil when clients need not be told
}

// chooseCertificates follows one rule: a listener that is not loopback has TLS unless plain text
// was asked for.
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
		return nil, errors.New("an own CA needs a data directory")
	default:
		return openCA(cfg.DataDir, cfg.names())
	}
}

// names are what clients may call the server: what it was told, and the addresses that it listens
// on, which enrol manifests name unless told otherwise.
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

// isLoopback reports whether nobody else can reach an address. A name is one only if it is localhost.
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

// fileCertificate is a given certificate, read again when its files change: certificates are
// renewed under running servers.
type fileCertificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	stamp   string
	checked time.Time
}

// checkEvery spares a stat per handshake when a fleet comes back at once.
const checkEvery = time.Second

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
	if time.Since(f.checked) >= checkEvery {
		if err := f.reload(); err != nil { // half-written files are common; the old one is still good
			f.log.Warn("reading the TLS certificate again, keeping the old one", obs.Err(err))
		}
	}
	return f.current, nil
}

func (f *fileCertificate) reload() error {
	f.checked = time.Now()
	stamp, err := stampOf(f.certFile, f.keyFile)
	if err != nil {
		return fmt.Errorf("reading the TLS certificate: %w", err)
	}
	if stamp == f.stamp {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err != nil {
		return fmt.Errorf("reading the TLS certificate: %w", err)
	}
	f.current, f.stamp = &cert, stamp
	return nil
}

func stampOf(files ...string) (string, error) {
	stamp := ""
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			return "", err
		}
		stamp += fmt.Sprintf("%d/%d;", info.ModTime().UnixNano(), info.Size())
	}
	return stamp, nil
}
