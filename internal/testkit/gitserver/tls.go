package gitserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"time"
)

// Protect restricts reads of a repository over HTTP and HTTPS to users, with passwords by name. nil removes the
// restriction. Pushing stays open, because tests write with it.
func (s *Server) Protect(repo string, users map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == nil {
		s.users = map[string]map[string]string{}
	}
	s.users[repo] = users
}

// ProtectPush restricts pushes to a repository over HTTP and HTTPS to users, with passwords by name. nil
// removes the restriction.
func (s *Server) ProtectPush(repo string, users map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writers == nil {
		s.writers = map[string]map[string]string{}
	}
	s.writers[repo] = users
}

// mayPush reports whether a request is not a push, or is allowed.
func (s *Server) mayPush(r *http.Request) bool {
	repo, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), ".git/")
	s.mu.Lock()
	users := s.writers[repo]
	s.mu.Unlock()
	if users == nil || (rest != "git-receive-pack" && r.URL.Query().Get("service") != "git-receive-pack") {
		return true
	}
	name, password, _ := r.BasicAuth()
	want, known := users[name]
	return known && subtle.ConstantTimeCompare([]byte(password), []byte(want)) == 1
}

// mayRead reports whether a request does not read a protected repository, or is allowed.
func (s *Server) mayRead(r *http.Request) bool {
	repo, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), ".git/")
	s.mu.Lock()
	users := s.users[repo]
	s.mu.Unlock()
	if users == nil || rest == "git-receive-pack" || r.URL.Query().Get("service") == "git-receive-pack" {
		return true
	}
	name, password, ok := r.BasicAuth()
	want, known := users[name]
	return ok && known && subtle.ConstantTimeCompare([]byte(password), []byte(want)) == 1
}

// TLS serves the repositories of a server over HTTPS.
type TLS struct {
	// CertPEM is the certificate, which no system trusts.
	CertPEM []byte
	baseURL string
}

// ServeTLS serves over HTTPS on another free port of 127.0.0.1, until the server is closed.
func (s *Server) ServeTLS() (*TLS, error) {
	cert, certPEM, err := selfSigned()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}
	go func() {
		_ = server.ServeTLS(listener, "", "") // as in Start
	}()
	s.onClose(server.Close)
	return &TLS{CertPEM: certPEM, baseURL: "https://" + listener.Addr().String() + "/"}, nil
}

// URL returns the address of a repository over HTTPS.
func (t *TLS) URL(repo string) string { return t.baseURL + repo + ".git" }

// Pool returns a pool with only this certificate.
func (t *TLS) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(t.CertPEM)
	return pool
}

func (s *Server) onClose(end func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, end)
}

// selfSigned creates a certificate for 127.0.0.1 and localhost.
func selfSigned() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("making a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
