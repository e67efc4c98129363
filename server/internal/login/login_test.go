package login_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit/oidcserver"

	"github.com/kedge-dev/kedge/server/internal/login"
)

const loginPath = "/api/v1/auth/login"

func TestPersonLogsInAndOut(t *testing.T) {
	t.Parallel()
	w, browser := newTestServer(t), newBrowser(t)
	w.person("jane", "devs", "others")
	got := w.visit(t, browser, "GET", loginPath+"?return="+url.QueryEscape("/deployments?sync=Failed"), "")
	if got.status != 200 || got.body != "the console at /deployments?sync=Failed" {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	if w.asked.Get("code_challenge_method") != "S256" || w.asked.Get("nonce") == "" || len(w.asked.Get("state")) < 20 {
		t.Errorf("the request to the provider is %v", w.asked)
	}
	if name, role, status := w.whoami(t, browser); name != "jane@example.com" || role != "deployer" || status != 200 {
		t.Errorf("whoami returns %q, %q (%d)", name, role, status)
	}
	token := w.session(t, browser).Value
	if name, _, status := w.whoami(t, http.DefaultClient, "Authorization", "Bearer "+token); status != 200 || name != "jane@example.com" {
		t.Errorf("the token of the session as a bearer: %d", status)
	}

	if got := w.visit(t, browser, "POST", "/api/v1/auth/logout", "", "Sec-Fetch-Site", "cross-site"); got.status != 403 {
		t.Errorf("a logout by another site: got %d %s", got.status, got.body)
	}
	if got := w.visit(t, browser, "POST", "/api/v1/auth/logout", "", "Sec-Fetch-Site", "same-origin"); got.status != 204 {
		t.Errorf("logout: got %d %s", got.status, got.body)
	}
	if w.session(t, browser) != nil {
		t.Error("the cookie was not removed")
	}
	if _, _, status := w.whoami(t, http.DefaultClient, "Authorization", "Bearer "+token); status != 401 {
		t.Errorf("the token after the logout: got %d", status)
	}
	if got := w.visit(t, browser, "POST", "/api/v1/auth/logout", ""); got.status != 204 {
		t.Errorf("a second logout: got %d %s", got.status, got.body)
	}
	for _, secret := range []string{token, w.asked.Get("nonce"), w.provider.ClientSecret} {
		if strings.Contains(w.logged(), secret) {
			t.Errorf("%q is in the log", secret)
		}
	}
}

func TestGroupsDetermineRoles(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	cases := []struct {
		reason, name string
		groups       []string
		role         string
		tenants      int // the status of an attempt to create a tenant
	}{
		{"a group with a role in a tenant", "jane", []string{"devs"}, "deployer", 403},
		{"a group of fleet admins", "anna", []string{"devs", "platform"}, "fleet-admin", 201},
		{"groups without a role", "bert", []string{"sales"}, "", 403},
		{"no groups", "carl", nil, "", 403},
	}
	for _, c := range cases {
		browser := newBrowser(t)
		w.person(c.name, c.groups...)
		w.visit(t, browser, "GET", loginPath, "")
		if name, role, _ := w.whoami(t, browser); name != c.name+"@example.com" || role != c.role {
			t.Errorf("%s: whoami returns %q, %q", c.reason, name, role)
		}
		body := `{"name":"tenant-of-` + c.name + `"}`
		if got := w.visit(t, browser, "POST", "/api/v1/tenants", body, "Content-Type", "application/json"); got.status != c.tenants {
			t.Errorf("%s: got %d %s", c.reason, got.status, got.body)
		}
	}
}

func TestCrossSiteRequestWithCookieIsRejected(t *testing.T) {
	t.Parallel()
	w, browser := newTestServer(t), newBrowser(t)
	w.person("anna", "platform")
	w.visit(t, browser, "GET", loginPath, "")
	token := w.session(t, browser).Value
	freeze := func(client *http.Client, header ...string) int {
		return w.visit(t, client, "POST", "/api/v1/fleet/freeze", "", header...).status
	}
	for reason, header := range map[string][]string{
		"another site": {"Sec-Fetch-Site", "cross-site"}, "the same site": {"Sec-Fetch-Site", "same-site"}, "another origin": {"Origin", "https://evil.example.com"},
	} {
		if got := freeze(browser, header...); got != 403 {
			t.Errorf("%s: got %d", reason, got)
		}
		if got := freeze(http.DefaultClient, append(header, "Authorization", "Bearer "+token)...); got != 200 {
			t.Errorf("%s with a token in the header, which browsers do not send by themselves: got %d", reason, got)
		}
	}
	if got := freeze(browser, "Sec-Fetch-Site", "same-origin"); got != 200 {
		t.Errorf("the console: got %d", got)
	}
	if got := w.visit(t, browser, "GET", "/api/v1/fleet", "", "Sec-Fetch-Site", "cross-site").status; got != 200 {
		t.Errorf("a read: got %d", got)
	}
}

// back runs a login until the provider redirects the browser back, and returns that URL.
func (w *testServer) back(t *testing.T, browser *http.Client, query string) string {
	t.Helper()
	there := *browser
	there.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == "/api/v1/auth/callback" {
			return http.ErrUseLastResponse
		}
		return nil
	}
	got := w.visit(t, &there, "GET", loginPath+query, "")
	if got.status != 302 {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	return got.next
}

func TestInvalidCallbackIsRejected(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason string
		status int
		do     func(t *testing.T, w *testServer, browser *http.Client) page
	}{
		{"another state", 400, func(t *testing.T, w *testServer, browser *http.Client) page {
			return w.visit(t, browser, "GET", strings.Replace(w.back(t, browser, ""), "state=", "state=X", 1), "")
		}},
		{"no state", 400, func(t *testing.T, w *testServer, browser *http.Client) page {
			return w.visit(t, browser, "GET", "/api/v1/auth/callback?code=x", "")
		}},
		{"another browser", 400, func(t *testing.T, w *testServer, browser *http.Client) page {
			return w.visit(t, newBrowser(t), "GET", w.back(t, browser, ""), "")
		}},
		{"the state of one login with the cookie of another", 400, func(t *testing.T, w *testServer, browser *http.Client) page {
			first := w.back(t, browser, "")
			w.back(t, browser, "")
			swap(t, w, browser)
			return w.visit(t, browser, "GET", first, "")
		}},
		{"a changed cookie", 400, func(t *testing.T, w *testServer, browser *http.Client) page {
			to := w.back(t, browser, "")
			tamper(t, w, browser)
			return w.visit(t, browser, "GET", to, "")
		}},
		{"too late", 400, func(t *testing.T, w *testServer, browser *http.Client) page {
			to := w.back(t, browser, "")
			w.ahead.Store(int64(10*time.Minute + time.Second))
			return w.visit(t, browser, "GET", to, "")
		}},
		{"a second time", 400, func(t *testing.T, w *testServer, browser *http.Client) page {
			to := w.back(t, browser, "")
			w.visit(t, browser, "GET", to, "")
			return w.visit(t, browser, "GET", to, "")
		}},
		{"another nonce", 403, func(t *testing.T, w *testServer, browser *http.Client) page {
			w.nonce = "nonce-of-another-login"
			return w.visit(t, browser, "GET", w.back(t, browser, ""), "")
		}},
		{"an expired ID token", 403, func(t *testing.T, w *testServer, browser *http.Client) page {
			w.provider.FastForward(-time.Hour)
			return w.visit(t, browser, "GET", w.back(t, browser, ""), "")
		}},
		{"a code that is not from the provider", 403, func(t *testing.T, w *testServer, browser *http.Client) page {
			return w.visit(t, browser, "GET", strings.Replace(w.back(t, browser, ""), "code=", "code=X", 1), "")
		}},
		{"a code of another login with another verifier", 403, func(t *testing.T, w *testServer, browser *http.Client) page {
			stolen := w.back(t, newBrowser(t), "")
			mine, err := url.Parse(w.back(t, browser, ""))
			if err != nil {
				t.Fatal(err)
			}
			other, err := url.Parse(stolen)
			if err != nil {
				t.Fatal(err)
			}
			query := mine.Query()
			query.Set("code", other.Query().Get("code"))
			mine.RawQuery = query.Encode()
			return w.visit(t, browser, "GET", mine.String(), "")
		}},
		{"the provider rejects the login", 403, func(t *testing.T, w *testServer, browser *http.Client) page {
			to := w.back(t, browser, "")
			return w.visit(t, browser, "GET", to+"&error=access_denied&error_description="+url.QueryEscape("not\x1b[1mtoday"), "")
		}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			w, browser := newTestServer(t), newBrowser(t)
			got := c.do(t, w, browser)
			if got.status != c.status || got.header.Get("Content-Type") != "application/problem+json" || strings.Contains(got.body, "\x1b") {
				t.Errorf("got %d %s, want %d", got.status, got.body, c.status)
			}
			if nonce := w.asked.Get("nonce"); strings.Contains(w.logged(), "Invalid code") || (nonce != "" && strings.Contains(w.logged(), nonce)) {
				t.Errorf("the log contains secrets: %s", w.logged())
			}
			if c.reason != "a second time" && w.session(t, browser) != nil {
				t.Error("the browser has a session")
			}
		})
	}
}

// loginCookies returns the cookies of logins in progress.
func loginCookies(t *testing.T, w *testServer, browser *http.Client) (at *url.URL, found []*http.Cookie) {
	t.Helper()
	at, err := url.Parse(w.server.URL + "/api/v1/auth/callback")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range browser.Jar.Cookies(at) {
		if strings.HasPrefix(c.Name, "kedge-login-") {
			c.Path = "/api/v1/auth/"
			found = append(found, c)
		}
	}
	return at, found
}

// swap exchanges the values of the cookies of two logins.
func swap(t *testing.T, w *testServer, browser *http.Client) {
	t.Helper()
	at, found := loginCookies(t, w, browser)
	if len(found) != 2 {
		t.Fatalf("%d logins are in progress, want 2", len(found))
	}
	found[0].Value, found[1].Value = found[1].Value, found[0].Value
	browser.Jar.SetCookies(at, found)
}

// tamper changes one character of each cookie.
func tamper(t *testing.T, w *testServer, browser *http.Client) {
	t.Helper()
	at, found := loginCookies(t, w, browser)
	for _, c := range found {
		text := []byte(c.Value)
		text[len(text)/2] = map[bool]byte{true: 'A', false: 'B'}[text[len(text)/2] != 'A']
		c.Value = string(text)
	}
	browser.Jar.SetCookies(at, found)
}

func TestConcurrentLoginsInOneBrowser(t *testing.T) {
	t.Parallel()
	w, browser := newTestServer(t), newBrowser(t)
	first, second := w.back(t, browser, "?return=/one"), w.back(t, browser, "?return=/two")
	for to, want := range map[string]string{first: "the console at /one", second: "the console at /two"} {
		if got := w.visit(t, browser, "GET", to, ""); got.body != want {
			t.Errorf("got %d %s, want %s", got.status, got.body, want)
		}
	}
}

func TestReturnURLMustBeLocal(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	for _, to := range []string{
		"https://evil.example.com/", "//evil.example.com", `/\evil.example.com`, `\\evil.example.com`, "/\t/evil.example.com", "evil", "javascript:alert(1)", "/\n/x",
	} {
		if got := w.visit(t, newBrowser(t), "GET", loginPath+"?return="+url.QueryEscape(to), ""); got.status != 400 {
			t.Errorf("%q: got %d at %s", to, got.status, got.url)
		}
	}
}

func TestUserAndGroupClaims(t *testing.T) {
	t.Parallel()
	user := func(change func(*oidcserver.User)) oidcserver.User {
		u := oidcserver.User{Subject: "1", Email: "jane@example.com", EmailVerified: true, PreferredUsername: "jane", Groups: []string{"devs"}}
		change(&u)
		return u
	}
	cases := []struct {
		reason string
		config func(*login.Config)
		user   oidcserver.User
		name   string // "" if the login is rejected
	}{
		{"the email address", func(*login.Config) {}, user(func(*oidcserver.User) {}), "jane@example.com"},
		{"an unverified address", func(*login.Config) {}, user(func(u *oidcserver.User) { u.EmailVerified = false }), ""},
		{"no email address", func(*login.Config) {}, user(func(u *oidcserver.User) { u.Email = "" }), ""},
		{"another claim", func(c *login.Config) { c.UserClaim = "preferred_username" }, user(func(*oidcserver.User) {}), "jane"},
		{"the subject", func(c *login.Config) { c.UserClaim = "sub" }, user(func(*oidcserver.User) {}), "1"},
		{"a name with control characters", func(c *login.Config) { c.UserClaim = "preferred_username" }, user(func(u *oidcserver.User) { u.PreferredUsername = "ja\x1bne" }), ""},
		{"the name of the server in the audit log", func(c *login.Config) { c.UserClaim = "preferred_username" }, user(func(u *oidcserver.User) { u.PreferredUsername = "system" }), ""},
		{"a missing claim", func(c *login.Config) { c.UserClaim = "nickname" }, user(func(*oidcserver.User) {}), ""},
		{"another claim for groups", func(c *login.Config) { c.GroupsClaim = "preferred_username"; c.AdminGroups = []string{"jane"} }, user(func(*oidcserver.User) {}), "jane@example.com"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			w, browser := newTestServer(t, c.config), newBrowser(t)
			w.provider.QueueUser(c.user)
			got := w.visit(t, browser, "GET", loginPath, "")
			name, _, _ := w.whoami(t, browser)
			if name != c.name || (c.name == "" && got.status != 403) {
				t.Errorf("got %d %s, whoami returns %q", got.status, got.body, name)
			}
		})
	}
}

func TestSessionExpires(t *testing.T) {
	t.Parallel()
	w, browser := newTestServer(t, func(c *login.Config) { c.SessionTTL = time.Hour }), newBrowser(t)
	w.person("jane", "devs")
	w.visit(t, browser, "GET", loginPath, "")
	if _, _, status := w.whoami(t, browser); status != 200 {
		t.Fatalf("got %d", status)
	}
	w.ahead.Store(int64(time.Hour + time.Second))
	if _, _, status := w.whoami(t, browser); status != 401 {
		t.Errorf("an hour later: got %d", status)
	}
}

func TestLoginConfig(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	browser := newBrowser(t)
	config := func() (got apiv1.LoginConfig) {
		t.Helper()
		if err := json.Unmarshal([]byte(w.visit(t, browser, "GET", "/api/v1/auth/config", "").body), &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := apiv1.LoginConfig{OIDC: true, Issuer: w.provider.Issuer(), LoginURL: w.server.URL + loginPath}
	if got := config(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	w.person("jane", "devs")
	w.visit(t, browser, "GET", loginPath, "")
	want.Session = true
	if got := config(); got != want {
		t.Errorf("with a session: got %+v, want %+v", got, want)
	}
}

func TestUnreachableProviderFailsOnlyLogins(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, func(c *login.Config) { c.Issuer = "http://127.0.0.1:1" })
	got := w.visit(t, newBrowser(t), "GET", loginPath, "")
	if got.status != 503 || !strings.Contains(got.body, "is unreachable") {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if _, _, status := w.whoami(t, http.DefaultClient); status != 401 {
		t.Errorf("the API: got %d", status)
	}
}
