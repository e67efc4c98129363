package login

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
)

const (
	prefix = "/api/v1/auth/"
	// attemptTTL is how long a person may take to log in at the provider.
	attemptTTL = 10 * time.Minute
)

// attempt is the state of a login between its start and the callback of the provider.
type attempt struct {
	State     string
	Nonce     string
	Verifier  string
	Return    string // where to redirect the browser afterwards
	Port      int    // of a CLI that listens on loopback; 0 for a browser
	Challenge string // of that CLI
	Expires   time.Time
}

func (l *Login) routes() {
	l.mux = http.NewServeMux()
	l.mux.HandleFunc("GET "+prefix+"config", l.serveConfig)
	l.mux.HandleFunc("GET "+prefix+"login", l.serveLogin)
	l.mux.HandleFunc("GET "+prefix+"callback", l.serveCallback)
	l.mux.HandleFunc("POST "+prefix+"confirm", l.serveConfirm)
	l.mux.HandleFunc("POST "+prefix+"logout", l.serveLogout)
	l.mux.HandleFunc("POST "+prefix+"exchange", l.serveExchange)
	l.mux.HandleFunc(prefix, func(w http.ResponseWriter, r *http.Request) {
		l.reject(w, r, http.StatusNotFound, "no such path or method: see /api/v1/openapi.json", nil)
	})
}

// ServeHTTP serves /api/v1/auth/.
func (l *Login) ServeHTTP(w http.ResponseWriter, r *http.Request) { l.mux.ServeHTTP(w, r) }

func (l *Login) serveConfig(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store") // the response depends on the cookie
	writeJSON(w, http.StatusOK, apiv1.LoginConfig{
		OIDC: true, Issuer: l.cfg.Issuer, LoginURL: l.cfg.ExternalURL() + prefix + "login", Session: l.SessionToken(r) != "",
	})
}

func (l *Login) serveLogin(w http.ResponseWriter, r *http.Request) {
	a, err := l.newAttempt(r.URL.Query())
	if err != nil {
		l.reject(w, r, http.StatusBadRequest, err.Error(), nil)
		return
	}
	p, err := l.discover(r.Context())
	if err != nil {
		l.reject(w, r, http.StatusServiceUnavailable, "the identity provider is unreachable: try again later, or use an API token", err)
		return
	}
	sealed, err := l.attempts.seal(a)
	if err != nil {
		l.reject(w, r, http.StatusInternalServerError, "starting the login failed", err)
		return
	}
	l.setCookie(w, attemptCookie(a.State), sealed, prefix, attemptTTL)
	http.Redirect(w, r, l.oauth(p).AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), http.StatusFound)
}

// newAttempt returns the state of a new login.
func (l *Login) newAttempt(query url.Values) (attempt, error) {
	a := attempt{State: random(), Nonce: random(), Verifier: oauth2.GenerateVerifier(), Return: "/", Expires: l.cfg.Now().Add(attemptTTL)}
	if to := query.Get("return"); to != "" {
		if !isLocal(to) {
			return a, errors.New("return must be a path of this server, such as /deployments")
		}
		a.Return = to
	}
	if !query.Has("cli") && !query.Has("challenge") {
		return a, nil
	}
	var err error
	a.Port, a.Challenge, err = cliParams(query)
	return a, err
}

// isLocal reports whether a URL stays on this server. Browsers treat a backslash as a slash, and ignore tabs and
// line breaks.
func isLocal(to string) bool {
	u, err := url.Parse(to)
	clean := !strings.ContainsFunc(to, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\\' })
	return err == nil && clean && u.Scheme == "" && u.Host == "" && u.User == nil &&
		strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//")
}

func (l *Login) serveCallback(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	a, err := l.attemptOf(w, r, query.Get("state"))
	if err != nil {
		l.reject(w, r, http.StatusBadRequest, "this login was started in another browser, expired, or is already complete: log in again", err)
		return
	}
	if refusal := query.Get("error"); refusal != "" {
		l.reject(w, r, http.StatusForbidden, "the identity provider rejected the login: "+plainText(refusal+": "+query.Get("error_description")), nil)
		return
	}
	who, err := l.verifyCode(r.Context(), a, query.Get("code"))
	if err != nil {
		l.reject(w, r, http.StatusForbidden, "the identity provider did not confirm your identity; the log of the server contains the cause", err)
		return
	}
	if a.Port != 0 {
		l.showConfirmPage(w, r, a, who)
		return
	}
	secret, session, ok := l.startSession(w, r, who)
	if !ok {
		return
	}
	l.setCookie(w, l.sessionCookie(), secret, "/", session.ExpiresAt.Sub(l.cfg.Now()))
	http.Redirect(w, r, a.Return, http.StatusFound)
}

// attemptOf returns the login of a callback and removes its cookie, so that it can be used once.
func (l *Login) attemptOf(w http.ResponseWriter, r *http.Request, state string) (attempt, error) {
	var a attempt
	if state == "" || len(state) > 64 {
		return a, errors.New("the state is missing")
	}
	cookie, err := r.Cookie(attemptCookie(state))
	if err != nil {
		return a, errors.New("the cookie of the login is missing")
	}
	l.setCookie(w, attemptCookie(state), "", prefix, -time.Second)
	if err := l.attempts.open(cookie.Value, &a); err != nil {
		return a, err
	}
	if subtle.ConstantTimeCompare([]byte(state), []byte(a.State)) != 1 {
		return a, errors.New("the state is for another login")
	}
	if !l.cfg.Now().Before(a.Expires) {
		return a, errors.New("the login expired")
	}
	return a, nil
}

// startSession starts a session. If that fails, it responds to the request and returns false.
func (l *Login) startSession(w http.ResponseWriter, r *http.Request, who control.Login) (secret string, session fleet.APIToken, ok bool) {
	who.Address = r.RemoteAddr
	secret, session, err := l.control.StartSession(r.Context(), who)
	var invalid *fleet.InvalidError
	switch {
	case errors.As(err, &invalid):
		l.reject(w, r, http.StatusForbidden, invalid.Problem, err)
	case err != nil:
		l.reject(w, r, http.StatusInternalServerError, "starting the session failed", err)
	}
	return secret, session, err == nil
}

func (l *Login) serveLogout(w http.ResponseWriter, r *http.Request) {
	token := bearer(r)
	if token == "" {
		token = l.SessionToken(r)
		if err := l.cross.Check(r); err != nil {
			l.reject(w, r, http.StatusForbidden, "the request came from a page of another site, so it was rejected", err)
			return
		}
	}
	err := l.endSession(r, token)
	var conflict *control.ConflictError
	switch {
	case errors.As(err, &conflict):
		l.reject(w, r, http.StatusConflict, conflict.Reason, nil)
		return
	case err != nil && !errors.Is(err, auth.ErrUnauthenticated): // a caller without a session is already logged out
		l.reject(w, r, http.StatusInternalServerError, "ending the session failed: try again", err)
		return
	}
	l.setCookie(w, l.sessionCookie(), "", "/", -time.Second)
	w.WriteHeader(http.StatusNoContent)
}

func (l *Login) endSession(r *http.Request, token string) error {
	if token == "" {
		return nil
	}
	p, err := l.control.Authenticate(r.Context(), token)
	if err != nil {
		return err
	}
	if p.Kube { // it is for requests to clusters only
		return auth.ErrUnauthenticated
	}
	p.Component, p.Address = "rest", r.RemoteAddr
	return l.control.EndSession(r.Context(), p)
}
