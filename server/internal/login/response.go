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

// SessionToken is the token of the session that a browser carries; "" when it carries none.
func (l *Login) SessionToken(r *http.Request) string {
	cookie, err := r.Cookie(l.sessionCookie())
	if err != nil {
		return ""
	}
	return cookie.Value
}

// sessionCookie has, over TLS, a name that browsers accept from this very host alone.
func (l *Login) sessionCookie() string {
	if l.secure() {
		return "__Host-kedge-session"
	}
	return "kedge-session"
}

// attemptCookie has a name of its own for each login, so that two tabs do not disturb each other.
func attemptCookie(state string) string { return "kedge-login-" + challengeOf(state)[:12] }

func (l *Login) secure() bool { return strings.HasPrefix(l.cfg.ExternalURL(), "https://") }

// setCookie sets a cookie that scripts cannot read; a negative lifetime removes it.
func (l *Login) setCookie(w http.ResponseWriter, name, value, path string, lasts time.Duration) {
	http.SetCookie(w, l.cookie(name, value, path, lasts, http.SameSiteLaxMode))
}

// setStrictCookie sets a cookie of the login that is sent to nothing that another site has begun.
func (l *Login) setStrictCookie(w http.ResponseWriter, name, value string, lasts time.Duration) {
	http.SetCookie(w, l.cookie(name, value, prefix, lasts, http.SameSiteStrictMode))
}

func (l *Login) cookie(name, value, path string, lasts time.Duration, site http.SameSite) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // G124: Secure is set wherever there is TLS; on plain loopback a browser would drop the cookie
		Name: name, Value: value, Path: path, MaxAge: int(lasts / time.Second),
		HttpOnly: true, Secure: l.secure(), SameSite: site,
	}
}

// refuse answers with a problem document. why, which may be nil, is for the log alone.
func (l *Login) refuse(w http.ResponseWriter, r *http.Request, status int, detail string, why error) {
	if why != nil {
		l.cfg.Log.InfoContext(r.Context(), "login refused", "status", status, obs.KeyAddress, r.RemoteAddr,
			obs.KeyUserError, status < http.StatusInternalServerError, obs.Err(why))
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	// The caller is gone if this fails.
	_ = json.NewEncoder(w).Encode(apiv1.Problem{Title: http.StatusText(status), Status: status, Detail: detail})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller is gone if this fails
}

func bearer(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// maxProviderText is the most that is shown of what a provider says.
const maxProviderText = 300

// plainText is what a provider says, short and without anything that a terminal would act on.
func plainText(text string) string {
	return strings.TrimSuffix(plaintext.Line(text, maxProviderText), ":")
}
