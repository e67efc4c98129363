package listen

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	certLifetime = 90 * 24 * time.Hour
	// certRenew is how long before it expires a server certificate is replaced.
	certRenew = 30 * 24 * time.Hour
	// backdate tolerates clients whose clock is behind.
	backdate = time.Hour
)

// ownCA signs the server's certificate. Only the CA is stored on disk. The server certificate is created at
// start, and again before it expires.
type ownCA struct {
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	pem   []byte
	names []string
	ips   []net.IP

	mu     sync.Mutex
	server *tls.Certificate
}

// openCA reads the CA in dir, or creates it.
func openCA(dir string, hosts []string) (*ownCA, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the data directory: %w", err)
	}
	keyFile, certFile := filepath.Join(dir, "ca.key"), filepath.Join(dir, "ca.pem")
	if _, err := os.Stat(keyFile); errors.Is(err, fs.ErrNotExist) {
		if err := createKey(keyFile); err != nil {
			return nil, fmt.Errorf("creating the CA's key: %w", err)
		}
	}
	if _, err := os.Stat(certFile); errors.Is(err, fs.ErrNotExist) {
		if err := createCACert(certFile, keyFile); err != nil {
			return nil, fmt.Errorf("creating the CA's certificate: %w", err)
		}
	}
	return readCA(certFile, keyFile, hosts)
}

// readCA reads an existing CA.
func readCA(certFile, keyFile string, hosts []string) (*ownCA, error) {
	key, err := readKey(keyFile)
	if err != nil {
		return nil, fmt.Errorf("opening the CA's key: %w", err)
	}
	ca := &ownCA{key: key, names: []string{"localhost"}, ips: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}}
	if ca.cert, ca.pem, err = readCACert(certFile, key); err != nil {
		return nil, fmt.Errorf("opening the CA's certificate: %w", err)
	}
	if time.Now().After(ca.cert.NotAfter) {
		return nil, fmt.Errorf("the CA in %s has expired: delete the file, restart the server, and install the new CA in all agents", certFile)
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			ca.ips = append(ca.ips, ip)
		} else if !slices.Contains(ca.names, host) {
			ca.names = append(ca.names, host)
		}
	}
	return ca, nil
}

func (ca *ownCA) caPEM() []byte { return slices.Clone(ca.pem) }

func (ca *ownCA) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	if ca.server != nil && time.Until(ca.server.Leaf.NotAfter) > certRenew {
		return ca.server, nil
	}
	signed, err := ca.sign(time.Now())
	if err != nil {
		return nil, fmt.Errorf("creating a server certificate: %w", err)
	}
	ca.server = signed
	return signed, nil
}

func (ca *ownCA) sign(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "kedge-server"},
		NotBefore: now.Add(-backdate), NotAfter: earlier(now.Add(certLifetime), ca.cert.NotAfter),
		DNSNames: ca.names, IPAddresses: ca.ips,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

func readKey(file string) (*ecdsa.PrivateKey, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, fmt.Errorf("%s contains no PEM key", file)
	}
	var parsed any
	if block.Type == "EC PRIVATE KEY" { // as written by openssl ecparam
		parsed, err = x509.ParseECPrivateKey(block.Bytes)
	} else {
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", file, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s contains a %T, not an ECDSA key", file, parsed)
	}
	return key, nil
}

func createKey(file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return createFile(file, "PRIVATE KEY", der, 0o600)
}

func readCACert(file string, key *ecdsa.PrivateKey) (*x509.Certificate, []byte, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, nil, fmt.Errorf("%s contains no PEM certificate", file)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("parsing %s: %w", file, err)
	}
	if !cert.IsCA {
		return nil, nil, fmt.Errorf("%s is not the certificate of a CA", file)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, nil, fmt.Errorf("%s does not match the CA's key", file)
	}
	return cert, raw, nil
}

func createCACert(file, keyFile string) error {
	key, err := readKey(keyFile)
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "kedge CA " + rand.Text()[:8]},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(caLifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	return createFile(file, "CERTIFICATE", der, 0o644)
}

// createFile creates a file atomically. A file that another process has created meanwhile is left alone.
func createFile(file, kind string, der []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // does nothing after a rename
	err = errors.Join(tmp.Chmod(mode), pem.Encode(tmp, &pem.Block{Type: kind, Bytes: der}), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	switch err := os.Link(tmp.Name(), file); {
	case err == nil || errors.Is(err, fs.ErrExist):
		return nil
	default: // a file system without hard links
		return os.Rename(tmp.Name(), file)
	}
}

func serial() *big.Int {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails
	raw[0] &= 0x7f
	return new(big.Int).SetBytes(raw[:])
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
