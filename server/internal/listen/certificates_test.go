package listen

import (
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

func TestListenersThatNeedTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tests := []struct {
		name, reason string
		cfg          Config
		want         string // "plain", "own" or "error"
	}{
		{"loopback", "only this machine can reach it", Config{Address: "127.0.0.1:8080"}, "plain"},
		{"loopback of IPv6", "only this machine can reach it", Config{Address: "[::1]:8080"}, "plain"},
		{"localhost", "only this machine can reach it", Config{Address: "localhost:8080"}, "plain"},
		{"all addresses", "other machines can reach it", Config{Address: ":8080", DataDir: dir}, "own"},
		{"another address", "other machines can reach it", Config{Address: "192.0.2.1:8080", DataDir: dir}, "own"},
		{"agents of other machines", "the agent port needs TLS too", Config{Address: "127.0.0.1:8080", AgentAddress: ":8443", DataDir: dir}, "own"},
		{"plain text", "a flag allows it", Config{Address: ":8080", Plaintext: true}, "plain"},
		{"loopback with a name", "a host name requires a certificate", Config{Address: "127.0.0.1:8080", Hosts: []string{"a.test"}, DataDir: dir}, "own"},
		{"certificate without a key", "the settings are incomplete", Config{Address: ":8080", CertFile: "a.pem"}, "error"},
		{"missing certificate", "the server does not start without it", Config{Address: ":8080", CertFile: dir + "/no", KeyFile: dir + "/no"}, "error"},
		{"CA without a key", "the settings are incomplete", Config{Address: ":8080", CACertFile: "ca.pem"}, "error"},
		{"missing CA", "a shared CA is never created", Config{Address: ":8080", CACertFile: dir + "/no", CAKeyFile: dir + "/no"}, "error"},
		{"no data directory", "agents would need a new CA after every start", Config{Address: ":8080"}, "error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			certs, err := chooseCertificates(tt.cfg)
			got := "plain"
			switch {
			case err != nil:
				got = "error"
			case certs != nil:
				got = "own"
			}
			if got != tt.want {
				t.Errorf("%s (%v), want %s: %s", got, err, tt.want, tt.reason)
			}
		})
	}
}

// covers: C3 (the certificate is valid for the address in the enrollment manifest)
func TestCertificateContainsListenAddresses(t *testing.T) {
	t.Parallel()
	certs, err := chooseCertificates(Config{Address: "192.0.2.1:8080", AgentAddress: "0.0.0.0:8443", Hosts: []string{"kedge.test"}, DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := certs.get(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"192.0.2.1": true, "kedge.test": true, "localhost": true, "127.0.0.1": true, "0.0.0.0": false, "192.0.2.2": false} {
		if err := signed.Leaf.VerifyHostname(name); (err == nil) != want {
			t.Errorf("the certificate for %s: %v, want valid: %t", name, err, want)
		}
	}
}

func TestServersThatStartTogetherShareTheCA(t *testing.T) {
	t.Parallel()
	for range 20 {
		dir := t.TempDir()
		pems := make([]string, 8)
		var g errgroup.Group
		for i := range pems {
			g.Go(func() error {
				ca, err := openCA(dir, nil)
				if err == nil {
					pems[i] = string(ca.caPEM())
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if len(slices.Compact(pems)) != 1 {
			t.Fatal("servers that start in the same data directory have different CAs")
		}
	}
}

func TestOwnCAIsCreatedOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	first, err := openCA(dir, []string{"kedge.test", "192.0.2.7"})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "ca.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("ca.key has mode %v, %v, want 0600", info.Mode(), err)
	}
	second, err := openCA(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(first.caPEM()) != string(second.caPEM()) {
		t.Error("a second start created another CA: agents would reject the server")
	}
	cert, err := first.get(nil)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(second.caPEM())
	for _, host := range []string{"kedge.test", "192.0.2.7", "localhost", "127.0.0.1", "::1"} {
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: host}); err != nil {
			t.Errorf("the certificate is not valid for %s: %v", host, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "ca.pem")); err != nil {
		t.Fatal(err)
	}
	if _, err := openCA(dir, nil); err != nil {
		t.Errorf("the lost certificate of a CA is not created again: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.key"), []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openCA(dir, nil); err == nil {
		t.Error("a damaged key was replaced or accepted: agents would reject the server")
	}
}

func TestServerCertificateIsRenewedBeforeItExpires(t *testing.T) {
	t.Parallel()
	ca, err := openCA(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	old, err := ca.sign(time.Now().Add(certRenew - certLifetime - time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	ca.server = old
	renewed, err := ca.get(nil)
	if err != nil || slices.Equal(renewed.Certificate[0], old.Certificate[0]) {
		t.Errorf("a certificate that expires at %s was not replaced (%v)", old.Leaf.NotAfter, err)
	}
	if again, _ := ca.get(nil); again != renewed {
		t.Error("a new certificate was replaced")
	}
}

func TestChangedCertificateFileIsReloaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, err := openCA(filepath.Join(dir, "ca"), nil)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	replace := func(age time.Duration) []byte {
		cert, err := ca.sign(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: key}} {
			if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
			at := time.Now().Add(-age)
			if err := os.Chtimes(file, at, at); err != nil {
				t.Fatal(err)
			}
		}
		return cert.Certificate[0]
	}
	first := replace(time.Hour)
	f, err := newFileCertificate(certFile, keyFile, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	served := func() []byte {
		f.checked = time.Time{} // as if a second had passed
		cert, err := f.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return cert.Certificate[0]
	}
	if !slices.Equal(served(), first) {
		t.Error("the certificate of the file is not served")
	}
	second := replace(time.Minute)
	if !slices.Equal(served(), second) {
		t.Error("the old certificate is served after the files changed")
	}
	if err := os.WriteFile(keyFile, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(served(), second) {
		t.Error("an incomplete file replaced a valid certificate")
	}
}

// Agents treat servers that share a database as one: the certificates of all servers are from the same CA.
func TestServersCanShareACA(t *testing.T) {
	t.Parallel()
	first := t.TempDir()
	if _, err := openCA(first, nil); err != nil {
		t.Fatal(err)
	}
	given := Config{Address: ":8080", CACertFile: filepath.Join(first, "ca.pem"), CAKeyFile: filepath.Join(first, "ca.key"), DataDir: t.TempDir()}
	one, err := chooseCertificates(Config{Address: ":8080", DataDir: first})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(one.caPEM())
	for _, host := range []string{"a.test", "b.test"} {
		given.Hosts = []string{host}
		certs, err := chooseCertificates(given)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := certs.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := signed.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if left, err := os.ReadDir(given.DataDir); err != nil || len(left) != 0 {
		t.Errorf("the server created its own CA: %v, %v", left, err)
	}
	signed, err := one.get(nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf := filepath.Join(t.TempDir(), "leaf.pem")
	if err := os.WriteFile(leaf, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed.Certificate[0]}), 0o600); err != nil {
		t.Fatal(err)
	}
	given.CACertFile = leaf
	if _, err := chooseCertificates(given); err == nil {
		t.Error("a certificate that is not a CA was accepted")
	}
}
