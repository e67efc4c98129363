package postgres

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

// plainServer is a server without TLS, or somebody on the way who says so. It returns the first message after the request for
// TLS, which a client sends in plain text.
func plainServer(t *testing.T) (address string, startup <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	seen := make(chan string, 8)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn, seen)
		}
	}()
	return listener.Addr().String(), seen
}

func serve(conn net.Conn, seen chan<- string) {
	defer func() { _ = conn.Close() }()
	const requestTLS = 80877103
	for {
		var head [8]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		if binary.BigEndian.Uint32(head[4:]) == requestTLS {
			if _, err := conn.Write([]byte("N")); err != nil {
				return
			}
			continue
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:4])-8)
		_, _ = io.ReadFull(conn, body)
		seen <- string(body)
		return
	}
}

// A connection string that says nothing about TLS never sends anything in plain text to another machine, even if that one
// says that it has no TLS.
//
// defect: B17
func TestConnectionsToOtherMachinesUseTLS(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reason, url string
		plain       bool // it may connect in plain text
	}{
		{"nothing is said", "postgres://kedge:secret@db.example.com/kedge", false},
		{"nothing is said, in the other form", "host=db.example.com user=kedge password=secret dbname=kedge", false},
		{"the password looks like a setting", "postgres://kedge:sslmode=disable@db.example.com/kedge", false},
		{"the password looks like a setting, in the other form", "host=db.example.com password=x!sslmode=disable user=kedge", false},
		{"one of several hosts is this machine", "postgres://kedge:secret@127.0.0.1,db.example.com/kedge", true},
		{"TLS is required", "postgres://kedge:secret@db.example.com/kedge?sslmode=require", false},
		{"the certificate is verified", "postgres://kedge:secret@db.example.com/kedge?sslmode=verify-full", false},
		{"this machine", "postgres://kedge:secret@127.0.0.1/kedge", true},
		{"this machine, by name", "postgres://kedge:secret@localhost/kedge", true},
		{"plain text is asked for", "postgres://kedge:secret@db.example.com/kedge?sslmode=disable", true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			t.Parallel()
			address, startup := plainServer(t)
			cfg, err := parse(test.url)
			if err != nil {
				t.Fatal(err)
			}
			var dialed atomic.Int64 // a connection that ends dials again, to cancel its request
			cfg.ConnConfig.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
			cfg.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
				dialed.Add(1)
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
			if _, err := pgx.ConnectConfig(t.Context(), cfg.ConnConfig); err == nil {
				t.Fatal("it is connected to a server that answers nothing")
			}
			select {
			case sent := <-startup:
				if !test.plain || !strings.Contains(sent, "kedge") {
					t.Errorf("%q was sent in plain text", sent)
				}
			default:
				if test.plain {
					t.Error("nothing was sent")
				}
			}
			if dialed.Load() == 0 {
				t.Error("nothing was dialed")
			}
		})
	}
}

// Every password reaches the driver as it is in the connection string.
//
// defect: B17
func TestPasswordsAreNotChanged(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"plain", "a/b", "a@b:c", "a?sslmode=disable", "a#b", "a%2Fb", "a b+c", "ä&=;'\"\\"} {
		u := url.URL{Scheme: "postgres", User: url.UserPassword("kedge", password), Host: "db.example.com", Path: "/kedge"}
		cfg, err := parse(u.String())
		if err != nil {
			t.Errorf("%q: %v", password, err)
			continue
		}
		if got := cfg.ConnConfig.Password; got != password || cfg.ConnConfig.Host != "db.example.com" || cfg.ConnConfig.TLSConfig == nil {
			t.Errorf("got password %q, host %q, TLS %v, want %q", got, cfg.ConnConfig.Host, cfg.ConnConfig.TLSConfig != nil, password)
		}
	}
}
