package replicaapi

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"
)

const (
	// certLifetime is how long the certificate of a server is valid. It is replaced after half of that time.
	certLifetime = 24 * time.Hour
	// backdate tolerates clocks that differ.
	backdate = time.Hour
)

// Identity holds the certificate of a server for other servers. Its CA is derived from the key that all servers share, so
// that it is equal on all of them and need not be stored. It signs certificates of servers and nothing else.
type Identity struct {
	replica string
	ca      *x509.Certificate
	caKey   ed25519.PrivateKey
	now     func() time.Time

	mu   sync.Mutex
	leaf *tls.Certificate
}

// NewIdentity returns the identity of a server. key is the secret of all servers, replica the ID of this one.
func NewIdentity(key []byte, replica string) (*Identity, error) {
	if len(key) < 32 || replica == "" {
		return nil, errors.New("the identity of a server needs a key of 32 bytes and an ID")
	}
	seed, err := hkdf.Key(sha256.New, key, nil, "kedge replica CA", ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("deriving the CA of the servers: %w", err)
	}
	caKey := ed25519.NewKeyFromSeed(seed)
	// Without a time or a random number, so that all servers create the same certificate. The key file cannot expire either.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kedge replicas"},
		NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca, err := sign(template, template, caKey.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("creating the CA of the servers: %w", err)
	}
	return &Identity{replica: replica, ca: ca, caKey: caKey, now: time.Now}, nil
}

func sign(template, parent *x509.Certificate, public any, key ed25519.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// serverTLS accepts servers with a certificate of the same CA.
func (i *Identity) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Time: i.now, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: i.pool(),
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.certificate() },
	}
}

// clientTLS connects to one server. Another one at its address, for example after a restart, is refused.
func (i *Identity) clientTLS(replica string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Time: i.now, RootCAs: i.pool(), ServerName: replica,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.certificate() },
	}
}

func (i *Identity) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(i.ca)
	return pool
}

// certificate returns the certificate of this server, and replaces it in time. It is only in memory.
func (i *Identity) certificate() (*tls.Certificate, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.now()
	if i.leaf != nil && now.Before(i.leaf.Leaf.NotAfter.Add(-certLifetime/2)) && now.After(i.leaf.Leaf.NotBefore) {
		return i.leaf, nil
	}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("creating the certificate of this server: %w", err)
	}
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails
	raw[0] &= 0x7f
	leaf, err := sign(&x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(raw[:]), Subject: pkix.Name{CommonName: "kedge replica"}, DNSNames: []string{i.replica},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(certLifetime), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, i.ca, public, i.caKey)
	if err != nil {
		return nil, fmt.Errorf("creating the certificate of this server: %w", err)
	}
	i.leaf = &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
	return i.leaf, nil
}
