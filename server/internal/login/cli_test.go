package login_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/server/internal/login"
)

const verifier = "a verifier that only this CLI knows"

// forCLI returns the query of a login by a CLI.
func forCLI(port string) string {
	sum := sha256.Sum256([]byte(verifier))
	return "?" + url.Values{"cli": {port}, "challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}}.Encode()
}

// code logs a person in and returns the code for their CLI.
func (w *testServer) code(t *testing.T) string {
	t.Helper()
	w.person("jane", "devs")
	browser := newBrowser(t)
	got := w.answer(t, browser, w.ask(t, browser), "yes")
	to, err := url.Parse(got.next)
	if err != nil || to.Scheme != "http" || to.Host != "127.0.0.1:4321" || to.Path != "/" || to.Query().Get("code") == "" {
		t.Fatalf("got %d %s, sent to %q", got.status, got.body, got.next)
	}
	if w.session(t, browser) != nil {
		t.Error("the browser received a session too")
	}
	return to.Query().Get("code")
}

// exchange exchanges a code like a CLI.
func exchange(t *testing.T, post func(body string) (int, string), code, verifier string) (token string, status int) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"code": code, "verifier": verifier})
	if err != nil {
		t.Fatal(err)
	}
	status, text := post(string(body))
	var got struct {
		Token, Name string
		ExpiresAt   time.Time
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if status == 200 && (got.Name != "jane@example.com" || time.Until(got.ExpiresAt) < 11*time.Hour) {
		t.Errorf("got %s", text)
	}
	return got.Token, status
}

func (w *testServer) post(t *testing.T) func(string) (int, string) {
	t.Helper()
	return func(body string) (int, string) {
		got := w.visit(t, http.DefaultClient, "POST", "/api/v1/auth/exchange", body)
		return got.status, got.body
	}
}

func TestCLILogsIn(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	code := w.code(t)
	token, status := exchange(t, w.post(t), code, verifier)
	if status != 200 {
		t.Fatalf("got %d", status)
	}
	if name, role, _ := w.whoami(t, http.DefaultClient, "Authorization", "Bearer "+token); name != "jane@example.com" || role != "deployer" {
		t.Errorf("whoami returns %q, %q", name, role)
	}
	if _, status := exchange(t, w.post(t), code, verifier); status != 400 {
		t.Errorf("the code a second time: got %d", status)
	}
	if got := w.visit(t, http.DefaultClient, "POST", "/api/v1/auth/logout", "", "Authorization", "Bearer "+token); got.status != 204 {
		t.Errorf("logout: got %d %s", got.status, got.body)
	}
	if _, _, status := w.whoami(t, http.DefaultClient, "Authorization", "Bearer "+token); status != 401 {
		t.Errorf("the token after the logout: got %d", status)
	}
	for _, secret := range []string{token, code, verifier} {
		if strings.Contains(w.logged(), secret) {
			t.Errorf("%q is in the log", secret)
		}
	}
}

func TestCodeIsValidForOneCLIAndOneMinute(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	code := w.code(t)
	changed := []byte(code)
	changed[len(code)/2] ^= 1
	for reason, c := range map[string]struct{ code, verifier string }{
		"another verifier": {code, "a guess"}, "no verifier": {code, ""}, "a changed code": {string(changed), verifier},
		"no code": {"", verifier}, "an unknown code": {"AAAA", verifier},
	} {
		if _, status := exchange(t, w.post(t), c.code, c.verifier); status != 400 {
			t.Errorf("%s: got %d", reason, status)
		}
	}
	browser := newBrowser(t)
	w.back(t, browser, forCLI("4321"))
	_, cookies := loginCookies(t, w, browser)
	if _, status := exchange(t, w.post(t), cookies[0].Value, verifier); status != 400 {
		t.Errorf("the cookie of a login as a code: got %d", status)
	}
	if _, status := exchange(t, w.post(t), code, verifier); status != 200 {
		t.Errorf("failed attempts used up the code: got %d", status)
	}
	late := w.code(t)
	w.ahead.Store(int64(time.Minute + time.Second))
	if _, status := exchange(t, w.post(t), late, verifier); status != 400 {
		t.Errorf("a minute later: got %d", status)
	}
}

// Any replica can handle the next step, because the server keeps no state between the steps. A code that one
// replica has used is used for all.
func TestAnotherReplicaCanFinishTheLogin(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	replica, err := login.New(w.cfg, w.control)
	if err != nil {
		t.Fatal(err)
	}
	there := func(body string) (int, string) {
		rec := httptest.NewRecorder()
		replica.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "POST", "/api/v1/auth/exchange", strings.NewReader(body)))
		return rec.Code, rec.Body.String()
	}
	code := w.code(t)
	if _, status := exchange(t, there, code, verifier); status != 200 {
		t.Errorf("got %d", status)
	}
	if _, status := exchange(t, w.post(t), code, verifier); status != 400 {
		t.Errorf("the same code on the first one: got %d", status)
	}
	other := w.cfg
	other.Key = []byte(strings.Repeat("x", 32))
	if replica, err = login.New(other, w.control); err != nil {
		t.Fatal(err)
	}
	if _, status := exchange(t, there, w.code(t), verifier); status != 400 {
		t.Errorf("a server with another key: got %d", status)
	}
}

func TestCLIParametersAreValidated(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	for _, query := range []string{
		"?cli=4321", "?challenge=x", "?cli=0&challenge=" + strings.Repeat("A", 43), "?cli=65536&challenge=" + strings.Repeat("A", 43),
		"?cli=evil.example.com&challenge=" + strings.Repeat("A", 43), "?cli=1@evil&challenge=" + strings.Repeat("A", 43), "?cli=80&challenge=short",
	} {
		if got := w.visit(t, newBrowser(t), "GET", loginPath+query, ""); got.status != 400 {
			t.Errorf("%s: got %d %s at %s", query, got.status, got.body, got.url)
		}
	}
	for _, body := range []string{"", "{", `{"code":"a","verifier":"b","x":1}`, `[]`} {
		if got := w.visit(t, http.DefaultClient, "POST", "/api/v1/auth/exchange", body); got.status != 400 {
			t.Errorf("%q: got %d %s", body, got.status, got.body)
		}
	}
}

// With TLS, browsers send the cookies only over TLS.
func TestCookieAttributes(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, func(c *login.Config) { c.ExternalURL = func() string { return "https://kedge.example.com" } })
	l, err := login.New(w.cfg, w.control)
	if err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	l.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", loginPath, nil))
	started := rec.Result()
	resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Get(started.Header.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	back, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || back.Host != "kedge.example.com" {
		t.Fatalf("redirected to %s: %v", back, err)
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", back.RequestURI(), nil)
	r.AddCookie(started.Cookies()[0])
	rec = httptest.NewRecorder()
	l.ServeHTTP(rec, r)
	cookies := append(started.Cookies(), rec.Result().Cookies()...)
	names := map[string]bool{}
	for _, c := range cookies {
		names[c.Name] = true
		if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Domain != "" {
			t.Errorf("cookie %s is %+v", c.Name, c)
		}
	}
	if !names["__Host-kedge-session"] {
		t.Errorf("the cookies are %v, response %d %s", names, rec.Code, rec.Body)
	}
}
