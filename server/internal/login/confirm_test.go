package login_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const confirmPath = "/api/v1/auth/confirm"

var confirmationField = regexp.MustCompile(`name="question" value="([^"]+)"`)

// ask logs a person in for a CLI, up to the confirmation page.
func (w *testServer) ask(t *testing.T, browser *http.Client) page {
	t.Helper()
	got := w.visit(t, browser, "GET", loginPath+forCLI("4321"), "")
	if got.status != 200 || confirmationField.FindString(got.body) == "" {
		t.Fatalf("got %d %s, sent to %q", got.status, got.body, got.next)
	}
	return got
}

// answer sends the form of the page.
func (w *testServer) answer(t *testing.T, browser *http.Client, asked page, answer string, header ...string) page {
	t.Helper()
	confirmation := html.UnescapeString(confirmationField.FindStringSubmatch(asked.body)[1])
	return w.send(t, browser, confirmation, answer, header...)
}

func (w *testServer) send(t *testing.T, browser *http.Client, confirmation, answer string, header ...string) page {
	t.Helper()
	body := url.Values{"question": {confirmation}, "answer": {answer}}.Encode()
	return w.visit(t, browser, "POST", confirmPath, body,
		append([]string{"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin"}, header...)...)
}

// sessions returns the number of all sessions.
func (w *testServer) sessions(t *testing.T) int {
	t.Helper()
	people, err := w.control.People(t.Context(), admin, store.Page{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range people {
		n += p.Sessions
	}
	return n
}

// A person who follows a link of an attacker sees a page first. It shows a code that identifies the program, and
// gives nothing to the program until the person confirms.
func TestUserConfirmsTheLoginOfACLI(t *testing.T) {
	t.Parallel()
	w, browser := newTestServer(t), newBrowser(t)
	w.person("jane", "devs")
	got := w.ask(t, browser)
	query, err := url.ParseQuery(strings.TrimPrefix(forCLI("4321"), "?"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"jane@example.com", apiv1.LoginCode(query.Get("challenge")), w.server.URL} {
		if !strings.Contains(got.body, text) {
			t.Errorf("the page does not show %q:\n%s", text, got.body)
		}
	}
	policy := got.header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self' http://127.0.0.1:4321"} {
		if !strings.Contains(policy, part) {
			t.Errorf("the policy %q lacks %q", policy, part)
		}
	}
	if got.header.Get("X-Frame-Options") != "DENY" || got.header.Get("Cache-Control") != "no-store" || !strings.HasPrefix(got.header.Get("Content-Type"), "text/html") {
		t.Errorf("the headers are %v", got.header)
	}
	if cookie := got.header.Get("Set-Cookie"); !strings.Contains(strings.Join(got.header.Values("Set-Cookie"), "\n"), "SameSite=Strict") {
		t.Errorf("the cookie is %q", cookie)
	}
	if strings.Contains(got.body, "code=") || w.sessions(t) != 0 || w.session(t, browser) != nil {
		t.Error("the CLI received a code before the confirmation")
	}
	for reason, next := range map[string]page{
		"a link instead of the form": w.visit(t, browser, "GET", confirmPath, ""),
		"no confirmation":            w.answer(t, browser, got, "no"),
	} {
		if strings.Contains(next.next, "code=") || w.sessions(t) != 0 {
			t.Errorf("%s: got %d, sent to %q", reason, next.status, next.next)
		}
		if strings.HasPrefix(reason, "no") && next.next != "http://127.0.0.1:4321/?error=denied" {
			t.Errorf("%s: the CLI receives %q", reason, next.next)
		}
	}
}

func TestForgedConfirmationIsRejected(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason string
		status int
		do     func(t *testing.T, w *testServer, browser *http.Client, asked page) page
	}{
		{"another site sends the form", 403, func(t *testing.T, w *testServer, browser *http.Client, asked page) page {
			return w.answer(t, browser, asked, "yes", "Sec-Fetch-Site", "cross-site")
		}},
		{"another site, with an old browser", 403, func(t *testing.T, w *testServer, browser *http.Client, asked page) page {
			return w.answer(t, browser, asked, "yes", "Sec-Fetch-Site", "", "Origin", "https://evil.example.com")
		}},
		{"another browser has the form", 400, func(t *testing.T, w *testServer, _ *http.Client, asked page) page {
			return w.answer(t, newBrowser(t), asked, "yes")
		}},
		{"another browser with its own confirmation", 400, func(t *testing.T, w *testServer, _ *http.Client, asked page) page {
			other := newBrowser(t)
			w.person("eve")
			w.ask(t, other)
			return w.answer(t, other, asked, "yes")
		}},
		{"a changed form", 400, func(t *testing.T, w *testServer, browser *http.Client, _ page) page {
			return w.send(t, browser, strings.Repeat("A", 200), "yes")
		}},
		{"no form", 400, func(t *testing.T, w *testServer, browser *http.Client, _ page) page {
			return w.send(t, browser, "", "yes")
		}},
		{"too late", 400, func(t *testing.T, w *testServer, browser *http.Client, asked page) page {
			w.ahead.Store(int64(5*time.Minute + time.Second))
			return w.answer(t, browser, asked, "yes")
		}},
		{"a second time", 400, func(t *testing.T, w *testServer, browser *http.Client, asked page) page {
			at, err := url.Parse(w.server.URL + confirmPath)
			if err != nil {
				t.Fatal(err)
			}
			kept := browser.Jar.Cookies(at)
			w.answer(t, browser, asked, "no")
			for _, c := range kept {
				c.Path = "/api/v1/auth/"
			}
			browser.Jar.SetCookies(at, kept)
			return w.answer(t, browser, asked, "yes")
		}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			w, browser := newTestServer(t), newBrowser(t)
			w.person("jane", "devs")
			got := c.do(t, w, browser, w.ask(t, browser))
			if got.status != c.status || strings.Contains(got.next, "code=") || w.sessions(t) != 0 {
				t.Errorf("got %d %s, sent to %q, want %d", got.status, got.body, got.next, c.status)
			}
		})
	}
}
