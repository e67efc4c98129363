package restapi

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/kedge-dev/kedge/server/internal/auth"
)

const (
	base   = "/api/v1"
	tenant = base + "/tenants/{tenant}"

	// maxBody bounds what a caller can make the server hold; no request comes near it.
	maxBody = 1 << 20
	// bodyTimeout is generous, because it also bounds the handler: net/http ends the context of a
	// request when the deadline for reading passes.
	bodyTimeout = 60 * time.Second
)

// Config is what the door may be told. Zero fields take their defaults.
type Config struct {
	// ExternalURL is how users and Git hosts reach the server, without a slash at its end. It is
	// a function because a port may be known only after listening.
	ExternalURL func() string
	// AgentAddress is what enrol manifests tell agents to connect to: grpcs://host:port.
	AgentAddress func() string
	// CAPEM is the certificate of the server's own CA; empty when a public one signed.
	CAPEM []byte
	// DefaultImage is the agent image of enrol manifests.
	DefaultImage string
	// Version of the server.
	Version string
	// KeepAlive is how often an idle stream writes a comment line, for proxies that cut silent
	// connections; default 20 s.
	KeepAlive time.Duration
	Log       *slog.Logger
}

// Control is what the door needs from the room that decides.
type Control interface {
	// Authenticate finds out who presents a token, or fails with auth.ErrUnauthenticated.
	Authenticate(ctx context.Context, token string) (auth.Principal, error)
	agentControl
	environmentControl
	deploymentControl
	repositoryControl
	eventControl
	streamControl
	hookControl
}

type api struct {
	cfg     Config
	control Control
	huma    huma.API
}

// New makes the handler of /api/v1/.
func New(cfg Config, control Control) http.Handler {
	cfg.KeepAlive = cmp.Or(cfg.KeepAlive, 20*time.Second)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	inner := http.NewServeMux()
	a := &api{cfg: cfg, control: control, huma: humago.New(inner, humaConfig())}
	a.registerWhoami()
	a.registerAgents()
	a.registerEnvironments()
	a.registerDeployments()
	a.registerRepositories()
	a.registerEvents()
	a.registerStream(inner)

	outer := http.NewServeMux()
	a.registerHooks(outer)
	outer.Handle("GET "+base+"/openapi.json", serveSpec(a.huma.OpenAPI()))
	outer.Handle("/", a.authenticated(routed(inner)))
	return a.observed(outer)
}

func humaConfig() huma.Config {
	cfg := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Kedge", Version: "v1",
				Description: "Pull-model GitOps for fleets of Kubernetes clusters. Errors are problem documents (RFC 9457).",
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "An API token, as printed at the first start of the server."},
				},
			},
			Security: []map[string][]string{{"token": {}}},
		},
		Formats: huma.DefaultFormats,
		// A mistyped filter that is ignored would answer another question than was asked.
		RejectUnknownQueryParameters: true,
	}
	return cfg
}

// operation describes one route; errors are the statuses that it answers with beside the common ones.
func operation(id, method, path, summary string, status int, errors ...int) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, DefaultStatus: status,
		Errors:       append([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}, errors...),
		MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
	}
}

// register adds a route. about says which object a request is for, so that an error can name it.
func register[I, O any](a *api, op huma.Operation, about func(*I) subject, fn func(context.Context, auth.Principal, *I) (*O, error)) {
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		info := infoFrom(ctx)
		info.about = about(in)
		out, err := fn(ctx, info.principal, in)
		if err != nil {
			return nil, mapError(ctx, err, info.about)
		}
		return out, nil
	})
}

// serveSpec writes the OpenAPI document, which is complete by now.
func serveSpec(spec *huma.OpenAPI) http.Handler {
	text, err := json.Marshal(spec)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err != nil {
			writeProblem(w, mapError(r.Context(), err, subject{}))
			return
		}
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
		_, _ = w.Write(text)
	})
}

// routed answers requests that no route takes with a problem document instead of plain text.
func routed(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r) // not handler: only the mux fills in path values
			return
		}
		probe := &statusProbe{header: http.Header{}, status: http.StatusOK}
		handler.ServeHTTP(probe, r)
		for _, name := range []string{"Allow", "Location"} {
			if v := probe.header.Get(name); v != "" {
				w.Header().Set(name, v)
			}
		}
		writeProblem(w, noRoute(r, probe.status))
	})
}

// statusProbe learns the status that a handler answers with and drops the rest.
type statusProbe struct {
	header http.Header
	status int
}

func (p *statusProbe) Header() http.Header         { return p.header }
func (p *statusProbe) Write(b []byte) (int, error) { return len(b), nil }
func (p *statusProbe) WriteHeader(status int)      { p.status = status }
