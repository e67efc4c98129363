package gitsource_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress/egresstest"
)

func managerWith(t *testing.T, cfg gitsource.Config) *gitsource.Manager {
	t.Helper()
	cfg.Dir = filepath.Join(t.TempDir(), "mirrors")
	m, err := gitsource.New(cfg)
	check(t, err)
	t.Cleanup(func() { check(t, m.Close()) })
	return m
}

// webServer handles all requests with handler and counts them.
func webServer(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	requests := new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	return server, requests
}

func problemOf(t *testing.T, err error) string {
	t.Helper()
	var remote *gitsource.RemoteError
	if !errors.As(err, &remote) {
		t.Fatalf("got %v, want a RemoteError", err)
	}
	return remote.Problem
}

var localWeb = gitsource.Config{Allow: []string{"http", "https", "ssh"}, Addresses: &egress.Policy{AllowLoopback: true}}

// covers: G2
func TestHTTPStatusesBecomeProblems(t *testing.T) {
	t.Parallel()
	m := managerWith(t, localWeb)
	for status, want := range map[int]string{
		401: "repository not found or not readable",
		403: "repository not found or not readable",
		404: "repository not found or not readable",
		410: "repository not found or not readable",
		302: "the server redirects, and redirects are not followed: use the final URL",
		400: "the server rejected the request",
		429: "the server asks for fewer requests",
		500: "the server reports an internal error",
		200: "the response is not from a Git repository: check the URL",
	} {
		server, _ := webServer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(status)
			fmt.Fprint(w, "this repository is secret")
		})
		_, err := m.Fetch(t.Context(), gitsource.Access{URL: server.URL + "/x.git"}, []string{"main"})
		if got := problemOf(t, err); got != want {
			t.Errorf("%d returned %q, want %q", status, got, want)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%d: the error repeats the response: %v", status, err)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	m := managerWith(t, localWeb)
	elsewhere, requests := webServer(t, func(http.ResponseWriter, *http.Request) {})
	for _, location := range []string{elsewhere.URL + "/x.git", "http://169.254.169.254/latest", "http://[::ffff:169.254.169.254]/latest", "//metadata.google.internal/x"} {
		server, _ := webServer(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, location, http.StatusFound)
		})
		access := gitsource.Access{URL: server.URL + "/x.git", Credential: &gitsource.Credential{Fingerprint: "f", Password: "s3cret"}}
		_, err := m.Fetch(t.Context(), access, []string{"main"})
		if got := problemOf(t, err); !strings.Contains(got, "redirects") {
			t.Errorf("to %s: %q", location, got)
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
}

func TestCredentialIsSentWithTheFirstRequestAndOnlyOverTLS(t *testing.T) {
	t.Parallel()
	m := managerWith(t, localWeb)
	var got atomic.Value
	server, requests := webServer(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		got.Store(user + ":" + password)
		http.Error(w, "no", http.StatusNotFound)
	})
	access := gitsource.Access{URL: server.URL + "/x.git", Credential: &gitsource.Credential{Fingerprint: "f", Password: "s3cret"}}
	_, err := m.Fetch(t.Context(), access, []string{"main"})
	checkNotReadable(t, access.URL, err)
	if got.Load() != "x-access-token:s3cret" || requests.Load() != 1 {
		t.Errorf("the server received %v in %d requests", got.Load(), requests.Load())
	}
	access.URL = "http://git.example.com/x.git"
	if _, err := m.Fetch(t.Context(), access, []string{"main"}); !strings.Contains(problemOf(t, err), "plain http") {
		t.Errorf("plain http returned %v", err)
	}
	access.URL = "https://git.example.com/x.git"
	access.Credential = &gitsource.Credential{Fingerprint: "f", SSHKey: []byte("x")}
	if _, err := m.Fetch(t.Context(), access, []string{"main"}); !strings.Contains(problemOf(t, err), "needs a password or token") {
		t.Errorf("an SSH key for https returned %v", err)
	}
	access.Credential = &gitsource.Credential{Password: "x"}
	if _, err := m.Fetch(t.Context(), access, []string{"main"}); err == nil {
		t.Error("a credential without a fingerprint was accepted")
	}
}

// The test searches the secret while git waits for a response.
func TestNoProcessSeesTheCredential(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("the test needs /proc")
	}
	m := managerWith(t, localWeb)
	const secret = "s3cret-for-the-list-of-processes"
	var gits, leaks atomic.Int64
	server, _ := webServer(t, func(w http.ResponseWriter, _ *http.Request) {
		files, _ := filepath.Glob("/proc/[0-9]*/*")
		for _, file := range files {
			if base := filepath.Base(file); base != "cmdline" && base != "environ" {
				continue
			}
			data, _ := os.ReadFile(file) // processes start and end
			if strings.Contains(string(data), "searched-repository.git") {
				gits.Add(1)
			}
			if strings.Contains(string(data), secret) {
				leaks.Add(1)
			}
		}
		http.Error(w, "no", http.StatusNotFound)
	})
	access := gitsource.Access{URL: server.URL + "/searched-repository.git", Credential: &gitsource.Credential{Fingerprint: "f", Password: secret}}
	_, err := m.Fetch(t.Context(), access, []string{"main"})
	checkNotReadable(t, access.URL, err)
	if gits.Load() == 0 || leaks.Load() != 0 {
		t.Errorf("%d git processes were found, %d with the secret", gits.Load(), leaks.Load())
	}
}

func TestDeniedAddressesAreNotReached(t *testing.T) {
	t.Parallel()
	server, requests := webServer(t, func(http.ResponseWriter, *http.Request) {})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(server.URL, "http://"))
	check(t, err)
	resolver := egresstest.Resolver(func(name string, _ bool) []netip.Addr {
		switch name {
		case "here.example.com":
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		case "metadata.example.com":
			return []netip.Addr{netip.MustParseAddr("169.254.169.254")}
		}
		return nil
	})
	m := managerWith(t, gitsource.Config{Allow: []string{"http", "https", "ssh"}, Resolver: resolver})
	keys := newKeys()
	for _, host := range []string{
		"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "2130706433", "0177.0.0.1", "0x7f.1", "127.1", "localhost",
		"here.example.com", "metadata.example.com", "metadata.google.internal", "169.254.169.254", "[fd00:ec2::254]", "[64:ff9b::a9fe:a9fe]",
	} {
		for _, scheme := range []string{"http", "https", "ssh"} {
			access := gitsource.Access{URL: scheme + "://" + host + ":" + port + "/x.git"}
			if scheme == "ssh" {
				access.Credential = &gitsource.Credential{Fingerprint: "f", SSHKey: keys.private(t, "k")}
			}
			_, err := m.Fetch(t.Context(), access, []string{"main"})
			if got := problemOf(t, err); got != "the address policy of the server denies the host" {
				t.Errorf("%s returned %v", access.URL, err)
			}
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("the server was reached %d times", n)
	}
}

func TestDNSRebindingIsDenied(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	want := commit(t, repo, map[string]string{"a": "1"})
	sshServer, err := server.ServeSSH()
	check(t, err)
	keys := newKeys()
	sshServer.Authorize(keys.public(t, "k")...)
	var moved atomic.Bool
	resolver := egresstest.Resolver(func(_ string, ipv6 bool) []netip.Addr {
		switch {
		case ipv6:
			return []netip.Addr{}
		case moved.Load():
			return []netip.Addr{netip.MustParseAddr("127.0.0.9")}
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	})
	// 127.0.0.1 represents a public address, the rest of loopback is denied.
	policy := &egress.Policy{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	m := managerWith(t, gitsource.Config{Allow: []string{"http", "ssh"}, Resolver: resolver, Addresses: policy})
	for _, raw := range []string{server.URL("app"), sshServer.URL("app")} {
		moved.Store(false)
		access := gitsource.Access{URL: strings.Replace(raw, "127.0.0.1", "rebind.example.com", 1)}
		if strings.HasPrefix(raw, "ssh") {
			known := strings.Replace(string(sshServer.KnownHosts()), "127.0.0.1", "rebind.example.com", 1)
			access.Credential = &gitsource.Credential{Fingerprint: "f", SSHKey: keys.private(t, "k"), KnownHosts: []byte(known)}
		}
		refs, err := m.Fetch(t.Context(), access, []string{"main"})
		check(t, err)
		if refs["main"].Commit != want {
			t.Errorf("%s: main is %+v", access.URL, refs["main"])
		}
		moved.Store(true)
		other := access // another port, so that no open connection can be reused
		other.URL = strings.Replace(access.URL, "/app.git", "/other.git", 1)
		if strings.HasPrefix(raw, "http") {
			other.URL = "http://rebind.example.com:1/app.git"
		}
		_, err = m.Fetch(t.Context(), other, []string{"main"})
		if got := problemOf(t, err); got != "the address policy of the server denies the host" {
			t.Errorf("%s after the name changed its address returned %v", other.URL, err)
		}
	}
}

func TestSilentServersTimeOut(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
		}
	}()
	cfg := localWeb
	cfg.Timeout = 300 * time.Millisecond
	m := managerWith(t, cfg)
	keys := newKeys()
	for _, scheme := range []string{"http", "https", "ssh"} {
		access := gitsource.Access{URL: scheme + "://" + listener.Addr().String() + "/x.git"}
		if scheme == "ssh" {
			access.Credential = &gitsource.Credential{Fingerprint: "f", SSHKey: keys.private(t, "k")}
		}
		_, err := m.Fetch(t.Context(), access, []string{"main"})
		if got := problemOf(t, err); got != "timed out after 300ms" {
			t.Errorf("%s returned %v", scheme, err)
		}
	}
}

func TestEndlessResponseIsCutOff(t *testing.T) {
	t.Parallel()
	m := managerWith(t, localWeb)
	server, _ := webServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		ref := "003f" + strings.Repeat("a", 40) + " refs/heads/branch\n"
		chunk := strings.Repeat(ref, 10_000)
		_, err := io.WriteString(w, "001e# service=git-upload-pack\n0000")
		for err == nil {
			_, err = io.WriteString(w, chunk)
		}
	})
	_, err := m.Fetch(t.Context(), gitsource.Access{URL: server.URL + "/x.git"}, []string{"main"})
	if got := problemOf(t, err); got != "the repository has too many branches and tags" {
		t.Errorf("got %v", err)
	}
}

func TestOperatorsProxyIsUsed(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	want := commit(t, repo, map[string]string{"a": "1"})
	https, err := server.ServeTLS()
	check(t, err)
	origin := strings.Split(https.URL(""), "/")[2]
	proxy, connects := webServer(t, func(w http.ResponseWriter, r *http.Request) { tunnel(t, w, r, origin) })
	proxyURL, err := url.Parse(proxy.URL)
	check(t, err)
	m := managerWith(t, gitsource.Config{
		RootCAs: https.Pool(), Proxy: func(*url.URL) (*url.URL, error) { return proxyURL, nil },
		// The name is for the certificate. The proxy is on this machine too. The policy does not apply to it.
		Addresses: &egress.Policy{AllowHosts: []string{"localhost"}},
	})
	reach := "https://localhost:" + origin[strings.LastIndex(origin, ":")+1:] + "/app.git"
	if got := fetchOne(t, m, reach, "main"); got != want || connects.Load() == 0 {
		t.Errorf("main is %s, want %s; the proxy received %d requests", got, want, connects.Load())
	}
	_, err = m.Fetch(t.Context(), gitsource.Access{URL: "https://169.254.169.254/x.git"}, []string{"main"})
	if got := problemOf(t, err); got != "the address policy of the server denies the host" {
		t.Errorf("a metadata service via the proxy returned %v", err)
	}
}

// TestInterruptedTransferIsNotDamage verifies that the mirror is not recreated, although git reports the same
// error as for damage.
func TestInterruptedTransferIsNotDamage(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	origin, err := url.Parse(server.URL(""))
	check(t, err)
	var truncated atomic.Bool
	front, _ := webServer(t, func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: origin.Host}).ServeHTTP(answer, r)
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		body := answer.Body.Bytes()
		if pack := bytes.Index(body, []byte("PACK")); truncated.Load() && pack >= 0 {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			_, _ = w.Write(body[:pack+20])
			check(t, http.NewResponseController(w).Flush())
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(body)
	})
	dir := filepath.Join(t.TempDir(), "mirrors")
	m := managerIn(t, dir)
	commit(t, repo, map[string]string{"a": "1"})
	fetchOne(t, m, front.URL+"/app.git", "main")
	mirrors, err := filepath.Glob(filepath.Join(dir, "*.git"))
	check(t, err)
	marker := filepath.Join(mirrors[0], "marker")
	check(t, os.WriteFile(marker, nil, 0o600))
	want := commit(t, repo, map[string]string{"a": "2"})
	truncated.Store(true)
	_, err = m.Fetch(t.Context(), gitsource.Access{URL: front.URL + "/app.git"}, []string{"main"})
	if got := problemOf(t, err); got != "the connection was lost" {
		t.Errorf("got %v", err)
	}
	truncated.Store(false)
	if got := fetchOne(t, m, front.URL+"/app.git", "main"); got != want {
		t.Errorf("main is %s, want %s", got, want)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Errorf("the mirror was recreated: %v", err)
	}
}
