package gitsource_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// privateNetwork is a policy that treats this machine as an allowed private network.
func privateNetwork() *egress.Policy {
	return &egress.Policy{AllowLoopback: true, PrivateCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

// port listens and calls serve for every connection. A nil serve returns a closed port.
func port(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	if serve == nil {
		check(t, l.Close())
		return l.Addr().String()
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// covers: G2 (a Git URL does not reveal the network of the server)
func TestPortsOfPrivateNetworksAreIndistinguishable(t *testing.T) {
	t.Parallel()
	m := managerWith(t, gitsource.Config{Allow: []string{"http", "https", "ssh"}, Addresses: privateNetwork()})
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	redirects := httptest.NewServer(http.RedirectHandler("http://elsewhere.example.com", http.StatusFound))
	t.Cleanup(redirects.Close)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	t.Cleanup(page.Close)
	at := func(url string) string { return url[strings.Index(url, "://")+3:] }
	urls := map[string]string{
		"a closed port":                  "https://" + port(t, nil) + "/x.git",
		"a closed port, in plain text":   "http://" + port(t, nil) + "/x.git",
		"a port that closes connections": "https://" + port(t, func(net.Conn) {}) + "/x.git",
		"a port that speaks no TLS":      "https://" + port(t, func(c net.Conn) { _, _ = io.WriteString(c, "220 mail\r\n") }) + "/x.git",
		"a web server":                   "http://" + at(plain.URL) + "/x.git",
		"a web server with TLS":          "https://" + at(secure.URL) + "/x.git",
		"a web server that redirects":    "http://" + at(redirects.URL) + "/x.git",
		"a web server with a page":       "http://" + at(page.URL) + "/x.git",
	}
	want := ""
	for what, url := range urls {
		_, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{"main"})
		got := strings.ReplaceAll(err.Error(), url, "URL")
		if want == "" {
			want = got
		}
		if got != want || !strings.Contains(got, "private network") {
			t.Errorf("%s returns %q, another port %q", what, got, want)
		}
	}
}

// covers: G2 (SSH)
func TestSSHPortsOfPrivateNetworksAreIndistinguishable(t *testing.T) {
	t.Parallel()
	m := managerWith(t, gitsource.Config{Allow: []string{"ssh"}, Addresses: privateNetwork()})
	keys := newKeys()
	var problems []string
	for _, address := range []string{
		port(t, nil), port(t, func(net.Conn) {}), port(t, func(c net.Conn) { _ = tls.Server(c, &tls.Config{}).Handshake() }),
	} {
		_, err := m.Fetch(t.Context(), gitsource.Access{
			URL: "ssh://git@" + address + "/x.git", Credential: &gitsource.Credential{Fingerprint: "f", SSHKey: keys.private(t, "k")},
		}, []string{"main"})
		problems = append(problems, problemOf(t, err))
	}
	for _, p := range problems {
		if p != problems[0] || !strings.Contains(p, "private network") {
			t.Errorf("ports are distinguishable: %q", problems)
			break
		}
	}
}

func TestPrivateNetworksAreDeniedIfTenantsShareTheServer(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	commit(t, repo, map[string]string{"a": "b"})
	url := server.URL("app")
	for _, c := range []struct {
		reason          string
		shared, allowed bool
		rejected        bool
	}{
		{"one tenant", false, false, false},
		{"several tenants", true, false, true},
		{"several tenants, allowed by the operator", true, true, false},
	} {
		m := managerWith(t, gitsource.Config{Allow: []string{"http"}, Addresses: privateNetwork(), AllowPrivate: c.allowed})
		m.SetShared(c.shared)
		_, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{"main"})
		if (err != nil) != c.rejected {
			t.Errorf("%s: got %v", c.reason, err)
		}
		if c.rejected && !strings.Contains(err.Error(), "--git-allow-private") {
			t.Errorf("%s: the error does not name the flag: %v", c.reason, err)
		}
	}
	// The second tenant may be created while connections are open.
	m := managerWith(t, gitsource.Config{Allow: []string{"http"}, Addresses: privateNetwork()})
	fetchOne(t, m, url, "main")
	m.SetShared(true)
	commit(t, repo, map[string]string{"a": "c"})
	if _, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{"main"}); err == nil {
		t.Error("a kept connection was reused")
	}
}
