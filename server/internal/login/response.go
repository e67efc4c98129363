package login

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/plaintext"
)

// SessionToken returns the session token of a browser, or "" if it has none.
func (l *Login) SessionToken(r *http.Request) string {
	cookie, err := r.Cookie(l.sessionCookie())
	if err != nil {
		return ""
	}
	return cookie.Value
}

// sessionCookie returns the name of the session cookie. Over TLS browsers accept that name only from this host.
func (l *Login) sessionCookie() string {
	if l.secure() {
		return "__Host-kedge-session"
	}
	return "kedge-session"
}

// attemptCookie returns a different name for each login, so that logins in two tabs do not interfere.
func attemptCookie(state string) string { return "kedge-login-" + challengeOf(state)[:12] }

func (l *Login) secure() bool { return strings.HasPrefix(l.cfg.ExternalURL(), "https://") }

// setCookie sets a cookie that scripts cannot read. A negative maxAge removes it.
func (l *Login) setCookie(w http.ResponseWriter, name, value, path string, maxAge time.Duration) {
	http.SetCookie(w, l.cookie(name, value, path, maxAge, http.SameSiteLaxMode))
}

// setStrictCookie sets a cookie of the login that browsers do not send with requests from other sites.
func (l *Login) setStrictCookie(w http.ResponseWriter, name, value string, maxAge time.Duration) {
	http.SetCookie(w, l.cookie(name, value, prefix, maxAge, http.SameSiteStrictMode))
}

func (l *Login) cookie(name, value, path string, maxAge time.Duration, site http.SameSite) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // G124: Secure is set with TLS; without TLS a browser would drop the cookie
		Name: name, Value: value, Path: path, MaxAge: int(maxAge / time.Second),
		HttpOnly: true, Secure: l.secure(), SameSite: site,
	}
}

// reject responds with a problem document. It logs why, which may be nil.
func (l *Login) reject(w http.ResponseWriter, r *http.Request, status int, detail string, why error) {
	if why != nil {
		l.cfg.Log.InfoContext(r.Context(), "login rejected", "status", status, obs.KeyAddress, r.RemoteAddr,
			obs.KeyUserError, status < http.StatusInternalServerError, obs.Err(why))
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	// It fails only if the caller disconnected.
	_ = json.NewEncoder(w).Encode(apiv1.Problem{Title: http.StatusText(status), Status: status, Detail: detail})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the caller disconnected
}

func bearer(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// maxProviderText limits the text of a provider in messages.
const maxProviderText = 300

// plainText returns the text of a provider, shortened and without control characters.
func plainText(text string) string {
	return strings.TrimSuffix(plaintext.Line(text, maxProviderText), ":")
}
