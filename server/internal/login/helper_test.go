package login_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit/oidcserver"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/login"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
)

var (
	admin = auth.Principal{Name: "admin", FleetAdmin: true}
	key   = []byte(strings.Repeat("k", 32))
)

// testServer is a server with its database and an identity provider.
type testServer struct {
	provider *oidcserver.Provider
	control  *control.Service
	server   *httptest.Server
	cfg      login.Config
	ahead    atomic.Int64 // offset of the server's clock
	asked    url.Values   // the last request to the provider
	nonce    string       // if not "", the nonce that the provider uses

	mu  sync.Mutex
	log bytes.Buffer
}

func (w *testServer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func (w *testServer) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

func newTestServer(t *testing.T, change ...func(*login.Config)) *testServer {
	t.Helper()
	w := &testServer{}
	w.startProvider(t)
	w.startControl(t)
	mux := http.NewServeMux()
	w.server = httptest.NewServer(mux)
	t.Cleanup(w.server.Close)
	w.cfg = login.Config{
		Issuer: w.provider.Issuer(), ClientID: w.provider.ClientID, ClientSecret: w.provider.ClientSecret,
		Scopes: []string{"openid", "profile", "email", "groups"}, AdminGroups: []string{"platform"},
		ExternalURL: func() string { return w.server.URL }, Key: key, Now: w.now, Log: slog.New(slog.NewJSONHandler(w, nil)),
	}
	for _, fn := range change {
		fn(&w.cfg)
	}
	l, err := login.New(w.cfg, w.control)
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle("/api/", restapi.New(restapi.Config{
		Login: l, Log: w.cfg.Log, PerAddress: restapi.Rate{PerSecond: 1000, Burst: 1000},
	}, w.control))
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, "the console at "+r.URL.RequestURI())
	})
	return w
}

func (w *testServer) startProvider(t *testing.T) {
	t.Helper()
	w.provider = oidcserver.Start(t)
	w.provider.OnAuthorize = func(query url.Values) {
		w.asked = maps.Clone(query)
		if w.nonce != "" {
			query.Set("nonce", w.nonce)
		}
	}
}

func (w *testServer) startControl(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "kedge.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	git, err := gitsource.New(gitsource.Config{Dir: filepath.Join(dir, "git")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = git.Close() })
	if w.control, err = control.New(control.Config{Key: key, Now: w.now}, st, git); err != nil {
		t.Fatal(err)
	}
	if _, err := w.control.Bootstrap(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	err = w.control.PutMember(t.Context(), admin, fleet.DefaultTenant, fleet.Member{Kind: fleet.MemberGroup, Subject: "devs", Role: fleet.RoleDeployer})
	if err != nil {
		t.Fatal(err)
	}
}

// person sets the person whom the provider logs in next.
func (w *testServer) person(name string, groups ...string) {
	w.provider.QueueUser(oidcserver.User{
		Subject: "id-of-" + name, Email: name + "@example.com", EmailVerified: true, PreferredUsername: name, Groups: groups,
	})
}

// newBrowser returns a client with cookies that follows redirects, but not to a CLI.
func newBrowser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if query := r.URL.Query(); (query.Has("code") || query.Has("error")) && r.URL.Path == "/" {
			return http.ErrUseLastResponse
		}
		return nil
	}}
}

// page is the response that a browser shows.
type page struct {
	status int
	url    *url.URL // the final URL
	next   string   // the redirect that was not followed
	header http.Header
	body   string
}

func (w *testServer) visit(t *testing.T, browser *http.Client, method, path, body string, header ...string) page {
	t.Helper()
	target := path
	if strings.HasPrefix(path, "/") {
		target = w.server.URL + path
	}
	r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := browser.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return page{resp.StatusCode, resp.Request.URL, resp.Header.Get("Location"), resp.Header, string(text)}
}

// whoami returns the name and role of a browser or a token.
func (w *testServer) whoami(t *testing.T, browser *http.Client, header ...string) (name, role string, status int) {
	t.Helper()
	got := w.visit(t, browser, "GET", "/api/v1/whoami", "", header...)
	var who struct{ Name, Role string }
	if err := json.Unmarshal([]byte(got.body), &who); err != nil {
		t.Fatalf("%v in %s", err, got.body)
	}
	return who.Name, who.Role, got.status
}

// session returns the session cookie of a browser, or nil.
func (w *testServer) session(t *testing.T, browser *http.Client) *http.Cookie {
	t.Helper()
	at, err := url.Parse(w.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range browser.Jar.Cookies(at) {
		if c.Name == "kedge-session" {
			return c
		}
	}
	return nil
}

// logged returns the log.
func (w *testServer) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}
