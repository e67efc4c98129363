package restapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/server/internal/auth"
)

const component = "rest"

// authenticated requires a valid token, in a header or in a session cookie.
func (a *api) authenticated(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := bearer(r)
		if token == "" && a.cfg.Login != nil {
			token = a.cfg.Login.SessionToken(r)
			// A browser sends its cookies with requests of any site; a token in a header comes only from its
			// own page.
			if err := cross.Check(r); token != "" && err != nil {
				writeProblem(w, problem(http.StatusForbidden,
					"a page of another site sent this request with your session: it was refused, and nothing was changed"))
				return
			}
		}
		a.admit(w, r, token, a.identify(r, token), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if infoFrom(r.Context()).principal.Kube {
				writeProblem(w, problem(http.StatusForbidden, "this token is only for requests to clusters: use an API token or log in"))
				return
			}
			next.ServeHTTP(w, r)
		}))
	})
}

// identify returns a function that authenticates the caller of a request.
func (a *api) identify(r *http.Request, token string) func(context.Context) error {
	return func(ctx context.Context) error {
		principal, err := a.control.Authenticate(ctx, token)
		if err != nil {
			return err
		}
		info := infoFrom(r.Context())
		principal.Component, principal.Request, principal.Address = component, info.id, r.RemoteAddr
		info.principal = principal
		info.guard = func(end func()) (leave func()) { return a.guards.watch(token, principal, end) }
		return nil
	}
}

// admit authenticates a caller, enforces the rate limits, and responds with a problem document if it refuses.
func (a *api) admit(w http.ResponseWriter, r *http.Request, token string, identify func(context.Context) error, next http.Handler) {
	a.admitOr(w, r, token, identify, next, func(p *problemDocument, wait time.Duration) {
		if wait > 0 {
			tooMany(w, wait, p.Detail)
			return
		}
		writeProblem(w, p)
	})
}

// admitOr is admit with another response if it refuses. wait is the time after which the caller may try again, or 0.
func (a *api) admitOr(w http.ResponseWriter, r *http.Request, token string, identify func(context.Context) error, next http.Handler,
	refuse func(p *problemDocument, wait time.Duration),
) {
	if wait := a.gate.knock(r, token); wait > 0 {
		a.metrics.refused.WithLabelValues(refusedAddress).Inc()
		refuse(problem(http.StatusTooManyRequests, "too many requests without a valid token from your address: wait, and check the token"), wait)
		return
	}
	err := auth.ErrUnauthenticated
	if token != "" {
		err = identify(r.Context())
	}
	if err != nil {
		p := mapError(r.Context(), err, subject{})
		if p.Status == http.StatusUnauthorized {
			a.gate.refused(r, token)
			w.Header().Set("WWW-Authenticate", `Bearer realm="kedge"`)
		}
		refuse(p, 0)
		return
	}
	key := caller(token)
	if p := infoFrom(r.Context()).principal; p.Kube {
		key = string(p.TokenHash) // all kube tokens of a caller count as one
	}
	if wait := a.gate.pass(key); wait > 0 {
		a.metrics.refused.WithLabelValues(refusedCaller).Inc()
		refuse(problem(http.StatusTooManyRequests, "too many requests with this token: slow down, use larger pages, or follow the stream instead of polling"), wait)
		return
	}
	infoFrom(r.Context()).tokenKey = key
	next.ServeHTTP(w, r)
}

func bearer(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// registerLogin adds the login routes. The login configuration is available even without a provider.
func (a *api) registerLogin(mux *http.ServeMux) {
	a.describeLogin()
	const authPath = base + "/auth/"
	handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == authPath+"config" {
			writeJSON(w, http.StatusOK, apiv1.LoginConfig{})
			return
		}
		writeProblem(w, problem(http.StatusNotFound, "this server has no identity provider: use an API token"))
	}))
	if a.cfg.Login != nil {
		handler = a.cfg.Login
	}
	mux.HandleFunc(authPath, func(w http.ResponseWriter, r *http.Request) {
		infoFrom(r.Context()).route = authPath
		if wait := a.gate.knock(r, ""); wait > 0 {
			a.metrics.refused.WithLabelValues(refusedAddress).Inc()
			tooMany(w, wait, "too many failed requests from your address: wait")
			return
		}
		rec := &statusRecorder{ResponseWriter: w}
		handler.ServeHTTP(rec, r)
		if rec.status >= http.StatusBadRequest && rec.status < http.StatusInternalServerError {
			a.gate.refused(r, "")
		}
	})
}
