package restapi

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/server/internal/auth"
)

// Kube carries requests to the API servers of clusters.
type Kube interface {
	// ServeKube proxies a request. Its URL is that of the API server.
	ServeKube(w http.ResponseWriter, r *http.Request, c KubeCaller, tenant, agent string)
	// Refuse responds to a caller that is not authenticated or sends too many requests, in a form that kubectl understands.
	Refuse(w http.ResponseWriter, u *url.URL, code int, message string, retry time.Duration)
}

// KubeCaller is the caller of a request to a cluster.
type KubeCaller struct {
	Principal auth.Principal
	// Key identifies the token of the caller without containing it.
	Key string
	// Guard calls end when the caller is not authenticated any more, until leave is called.
	Guard func(end func()) (leave func())
}

// registerKubeToken adds the route of the credential plugin of kubectl.
func (a *api) registerKubeToken() {
	op := operation("create-kube-token", http.MethodPost, base+"/kube-tokens",
		"Create a short-lived token for requests to clusters, and for nothing else, in the name of the caller", http.StatusCreated)
	register(a, op, resource{}, func(ctx context.Context, p auth.Principal, _ *struct{}) (*plain[apiv1.KubeToken], error) {
		infoFrom(ctx).shownOnce = true
		token, expires, err := a.control.CreateKubeToken(ctx, p)
		return &plain[apiv1.KubeToken]{apiv1.KubeToken{Token: token, ExpiresAt: expires}}, err
	})
}

// kubeRoute is the route of all requests to clusters, for logs and metrics.
const kubeRoute = tenant + "/agents/{agent}/kube"

// kube serves the requests to clusters, and passes all others to next. It comes before the mux, which would change some
// paths: an API server gets every path as the client has sent it.
func (a *api) kube(next http.Handler) http.Handler {
	if a.cfg.Kube == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenantName, agent, rest, ok := splitKubePath(r.URL)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		info := infoFrom(r.Context())
		info.route, info.about = kubeRoute, subject{kind: "agent", name: agent, tenant: tenantName}
		// Only a token in a header: a browser would send its session with the requests of any page.
		token := bearer(r)
		a.admitOr(w, r, token, a.identify(r, token), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.URL = rest
			a.cfg.Kube.ServeKube(w, r, KubeCaller{Principal: info.principal, Key: info.tokenKey, Guard: info.guard}, tenantName, agent)
		}), func(p *problemDocument, wait time.Duration) { a.cfg.Kube.Refuse(w, rest, p.Status, p.Detail, wait) })
	})
}

// splitKubePath returns the tenant, the agent and the URL for the API server.
func splitKubePath(u *url.URL) (tenantName, agent string, rest *url.URL, ok bool) {
	const tenants, agents, kube = "tenants", "agents", "kube"
	parts := strings.SplitN(strings.TrimPrefix(u.EscapedPath(), base+"/"), "/", 6)
	if !strings.HasPrefix(u.EscapedPath(), base+"/") || len(parts) < 5 || parts[0] != tenants || parts[2] != agents || parts[4] != kube {
		return "", "", nil, false
	}
	raw := "/"
	if len(parts) == 6 {
		raw += parts[5]
	}
	tenantName, err1 := url.PathUnescape(parts[1])
	agent, err2 := url.PathUnescape(parts[3])
	path, err3 := url.PathUnescape(raw)
	if err1 != nil || err2 != nil || err3 != nil {
		return "", "", nil, false
	}
	out := *u
	out.Path, out.RawPath = path, raw
	return tenantName, agent, &out, true
}
