package link_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// covers: C11
func TestEveryProblemHasAnExplanation(t *testing.T) {
	t.Parallel()
	hour := time.Hour
	tests := []struct {
		name, reason string
		kind         link.Kind
		words        []string
		setup        func(t *testing.T, c *link.Config)
	}{
		{"wrong token", "the commonest mistake", link.KindToken, []string{"the server refused the token in", "enroll"}, func(t *testing.T, c *link.Config) {
			t.Helper()
			c.Address = "grpc://" + serve(t, gatewaytest.NewMemory(), gatewaytest.Options{}).Addr()
		}},
		{"token file gone", "a Secret that is not mounted", link.KindToken, []string{"token", "no such file"}, func(t *testing.T, c *link.Config) {
			t.Helper()
			c.Tokens = link.TokenFile(t.TempDir() + "/gone")
		}},
		{"token file empty", "a Secret with the wrong key", link.KindToken, []string{"is empty"}, func(t *testing.T, c *link.Config) {
			t.Helper()
			c.Tokens = link.TokenFile(write(t, "token", "\n"))
		}},
		{"unknown authority", "a private CA was not given", link.KindTLS, []string{"--ca-cert-file"}, func(t *testing.T, c *link.Config) {
			t.Helper()
			c.Address = "grpcs://" + serve(t, gatewaytest.NewMemory(), gatewaytest.Options{DataDir: t.TempDir()}).Addr()
		}},
		{"unknown authority by WebSocket", "the same by WebSocket", link.KindTLS, []string{"--ca-cert-file"}, func(t *testing.T, c *link.Config) {
			t.Helper()
			c.Address = "wss://" + serve(t, gatewaytest.NewMemory(), gatewaytest.Options{DataDir: t.TempDir()}).Addr()
		}},
		{"another server's CA", "the wrong file was given", link.KindTLS, []string{"is not signed by the CA in", "ca.pem"}, func(t *testing.T, c *link.Config) {
			t.Helper()
			c.Address = "grpcs://" + serve(t, gatewaytest.NewMemory(), gatewaytest.Options{DataDir: t.TempDir()}).Addr()
			other := serve(t, gatewaytest.NewMemory(), gatewaytest.Options{DataDir: t.TempDir()})
			c.CAFile = write(t, "ca.pem", string(other.CAPEM()))
		}},
		{"CA file without a certificate", "a damaged file", link.KindTLS, []string{"contains no PEM certificate"}, func(t *testing.T, c *link.Config) {
			t.Helper()
			c.Address, c.CAFile = "grpcs://127.0.0.1:1", write(t, "ca.pem", "hello")
		}},
		{"another name", "the certificate is for another host", link.KindTLS, []string{"for other host names", "--tls-host"}, func(t *testing.T, c *link.Config) {
			t.Helper()
			serveCertificate(t, c, "elsewhere.test", -hour, hour)
		}},
		{"not yet valid", "the clock here is behind", link.KindClock, []string{"not valid before", "check both clocks"}, func(t *testing.T, c *link.Config) {
			t.Helper()
			serveCertificate(t, c, "127.0.0.1", hour, 2*hour)
		}},
		{"expired", "it was not renewed", link.KindTLS, []string{"expired at"}, func(t *testing.T, c *link.Config) {
			t.Helper()
			serveCertificate(t, c, "127.0.0.1", -2*hour, -hour)
		}},
		{"plain text where TLS is expected", "the wrong scheme or port", link.KindTLS, []string{"does not use TLS", "grpc://"}, func(t *testing.T, c *link.Config) {
			t.Helper()
			c.Address = "grpcs://" + serve(t, gatewaytest.NewMemory(), gatewaytest.Options{}).Addr()
		}},
		{"closed port", "the server is down", link.KindUnreachable, []string{"cannot be reached", "refused"}, func(t *testing.T, c *link.Config) {
			t.Helper()
			c.Address = "grpc://" + closedPort(t)
		}},
		{"no such path", "an ingress that does not know the path", link.KindProtocol, []string{"does not accept WebSocket connections", "404"}, func(t *testing.T, c *link.Config) {
			t.Helper()
			srv := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(srv.Close)
			c.Address = "ws://" + srv.Listener.Addr().String()
		}},
		{"engine does not start", "the cluster is the problem, not the server", link.KindEngine, []string{"the engine does not start", "no inventory"}, func(t *testing.T, c *link.Config) {
			t.Helper()
			m := gatewaytest.NewMemory()
			_, token := m.Enroll("edge-1")
			c.Address, c.Tokens = "grpc://"+serve(t, m, gatewaytest.Options{}).Addr(), link.TokenFile(write(t, "token", token))
			c.Welcomed = func(context.Context, wire.Welcome) (link.Engine, []engine.Held, error) {
				return nil, nil, errors.New("no inventory")
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			problems := newProblemLog()
			r := start(t, "grpc://127.0.0.1:1", "kedge-agent-wrong", func(c *link.Config) {
				c.Log = slog.New(problems)
				tt.setup(t, c)
			})
			problems.await(t, testContext(t))
			assertProblem(t, r, tt.kind, tt.words...)
			if strings.Contains(r.Ready(t.Context()).Error(), "kedge-agent-wrong") {
				t.Error("the message contains the token")
			}
			select {
			case <-r.done:
				t.Errorf("the client gave up: %s", tt.reason)
			default:
			}
		})
	}
}

func TestNewRefusesBadAddresses(t *testing.T) {
	t.Parallel()
	metrics, err := link.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"", "https://kedge", "grpc://", "grpc://user:secret@kedge", "grpc://kedge/path", "%"} {
		_, err := link.New(link.Config{
			Address: address, Tokens: link.TokenFile("t"), Log: slog.New(slog.DiscardHandler), Metrics: metrics,
			Hello:    func(context.Context) wire.Hello { return wire.Hello{} },
			Welcomed: func(context.Context, wire.Welcome) (link.Engine, []engine.Held, error) { return nil, nil, nil },
		})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("New(%q) = %v, want an error without a password", address, err)
		}
	}
}

// serveCertificate starts a server with a certificate for one host and one period, and trusts its CA.
func serveCertificate(t *testing.T, c *link.Config, host string, from, to time.Duration) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(to), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile := write(t, "tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	keyFile := write(t, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	srv := serve(t, gatewaytest.NewMemory(), gatewaytest.Options{CertFile: certFile, KeyFile: keyFile})
	c.Address, c.CAFile = "grpcs://"+srv.Addr(), certFile
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
