package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit"
)

// authority is an external CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	a := &authority{key: newKey(tb)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "somebody's CA"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	a.pem = encodePEM("CERTIFICATE", der)
	return a
}

// issue issues a certificate for an address that is valid between two times, relative to now.
func (a *authority) issue(tb testing.TB, address string, from, to time.Duration) (cert, key string) {
	tb.Helper()
	own := newKey(tb)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(to),
		IPAddresses: []net.IP{net.ParseIP(address)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, own.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		tb.Fatal(err)
	}
	return encodePEM("CERTIFICATE", der), encodePEM("PRIVATE KEY", raw)
}

// client trusts this authority. It opens a connection per request, so that each sees the current certificate.
func (a *authority) client(tb testing.TB) *http.Client {
	tb.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}}
}

// awaitCertificate waits until a server has loaded its new certificate.
func awaitCertificate(tb testing.TB, address, cert string) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // only to read it
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		if got := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]; encodePEM("CERTIFICATE", got.Raw) != cert {
			return errors.New("the server still has its old certificate")
		}
		return nil
	})
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func encodePEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// command runs a program without the environment of this process, except PATH.
func command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	return cmd
}
