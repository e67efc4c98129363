package restapi

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"

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
	// DefaultImage is the agent image of enrol manifests that name none. Without it such requests are
	// refused.
	DefaultImage string
	// Version of the server.
	Version string
	// KeepAlive is how often an idle stream writes a comment line, for proxies that cut silent
	// connections; default 20 s.
	KeepAlive time.Duration
	// Recheck is how often is asked whether the callers of streams may still read them, once for each
	// token; default 2 s.
	Recheck time.Duration
	// Login lets people in by an identity provider; nil when there is none.
	Login Login
	// PerCaller bounds the requests of each token; default 200 a second, 400 at once.
	PerCaller Rate
	// PerAddress bounds the requests that present no valid token, of each address; default 20 a
	// second, 40 at once.
	PerAddress Rate
	// Streams and LongPolls bound how many of them are open at the same time; zero fields take the
	// defaults of held_requests.go.
	Streams, LongPolls HeldLimit
	// TrustedProxies are those whose X-Forwarded-For is believed; default nobody's.
	TrustedProxies []netip.Prefix
	// Metrics counts requests and refusals; may be nil.
	Metrics prometheus.Registerer
	// Now is the clock; default time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Login is how people log in with a browser.
type Login interface {
	// ServeHTTP serves /api/v1/auth/.
	http.Handler
	// SessionToken is the token of the session that a browser carries; "" when it carries none.
	SessionToken(r *http.Request) string
}

// Control is what the door needs from the room that decides.
type Control interface {
	// Authenticate finds out who presents a token, or fails with auth.ErrUnauthenticated.
	Authenticate(ctx context.Context, token string) (auth.Principal, error)
	tenantControl
	fleetControl
	memberControl
	personControl
	apiTokenControl
	agentControl
	agentTokenControl
	agentConfigControl
	gitLabProjectControl
	environmentControl
	grantControl
	repositoryControl
	credentialControl
	deploymentControl
	revisionControl
	detachedControl
	uninstallControl
	runControl
	pruneControl
	imageControl
	diffControl
	operationControl
	auditControl
	eventControl
	diagnosisControl
	streamControl
	hookControl
	clusterControl
	replyControl
}

type api struct {
	cfg     Config
	control Control
	huma    huma.API
	gate    *gate
	guards  *guards
	metrics *metrics
	hooks   hookPlaces
	streams *heldRequests
	polls   *heldRequests
	// deliveries are the webhooks that had their effect.
	deliveries *deliveries
	pushes     *pushes
}

// New makes the handler of /api/v1/.
func New(cfg Config, control Control) http.Handler {
	cfg.KeepAlive = cmp.Or(cfg.KeepAlive, 20*time.Second)
	cfg.Recheck = cmp.Or(cfg.Recheck, 2*time.Second)
	cfg.PerCaller = cmp.Or(cfg.PerCaller, Rate{PerSecond: 200, Burst: 400})
	cfg.PerAddress = cmp.Or(cfg.PerAddress, Rate{PerSecond: 20, Burst: 40})
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	inner := http.NewServeMux()
	a := &api{cfg: cfg, control: control, gate: newGate(cfg), guards: newGuards(cfg.Recheck, control.Authenticate), metrics: newMetrics(cfg.Metrics), deliveries: newDeliveries(), pushes: newPushes()}
	refuse := func(kind string) { a.metrics.refused.WithLabelValues(kind).Inc() }
	a.streams = newHeldRequests(refusedStream, "change streams", cmp.Or(cfg.Streams, defaultStreams), refuse)
	a.polls = newHeldRequests(refusedPoll, "waiting polls", cmp.Or(cfg.LongPolls, defaultLongPolls), refuse)
	a.huma = humago.New(inner, humaConfig(newSpec()))
	a.registerAll(inner)

	outer := http.NewServeMux()
	a.registerHooks(outer)
	a.registerLogin(outer)
	outer.Handle(clusterPath+"/", a.asAgent(a.routed(a.clusterRoutes())))
	outer.Handle("GET "+base+"/openapi.json", a.serveSpec())
	outer.Handle("/", a.authenticated(a.replayed(a.routed(inner))))
	return a.fromClient(a.observed(tidy(outer)))
}

func (a *api) registerAll(mux *http.ServeMux) {
	a.registerWhoami()
	a.registerTenants()
	a.registerFleet()
	a.registerMembers()
	a.registerPeople()
	a.registerAPITokens()
	a.registerAgents()
	a.registerAgentTokens()
	a.registerAgentConfigs()
	a.registerEnvironments()
	a.registerGrants()
	a.registerRepositories()
	a.registerCredentials()
	a.registerDeployments()
	a.registerDeploymentActions()
	a.registerPrunes()
	a.registerImages()
	a.registerDiff()
	a.registerTargets()
	a.registerDetached()
	a.registerUninstall()
	a.registerRuns()
	a.registerOperations()
	a.registerAudit()
	a.registerEvents()
	a.registerDiagnosis()
	a.registerStream(mux)
}

// newSpec is the OpenAPI document before any operation is in it.
func newSpec() *huma.OpenAPI {
	return &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Kedge", Version: "v1",
			Description: "Pull-model GitOps for fleets of Kubernetes clusters. Errors are problem documents (RFC 9457).",
		},
		Components: &huma.Components{
			Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"token":      {Type: "http", Scheme: "bearer", Description: "An API token, as printed at the first start of the server, or that of a session."},
				"agentToken": {Type: "http", Scheme: "bearer", Description: "The token of an agent."},
			},
		},
		Security: []map[string][]string{{"token": {}}},
	}
}

func humaConfig(spec *huma.OpenAPI) huma.Config {
	return huma.Config{
		OpenAPI: spec,
		Formats: huma.DefaultFormats,
		// A mistyped filter that is ignored would answer another question than was asked.
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{withoutValues},
	}
}

// withoutValues takes what the caller sent out of problem documents: it may be a secret, and answers
// end up in logs.
func withoutValues(_ huma.Context, _ string, v any) (any, error) {
	if p, ok := v.(*huma.ErrorModel); ok {
		for _, e := range p.Errors {
			e.Value = nil
		}
	}
	return v, nil
}

// serveSpec writes the OpenAPI document, which is complete by now.
func (a *api) serveSpec() http.Handler {
	text, err := json.Marshal(a.huma.OpenAPI())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		infoFrom(r.Context()).route = base + "/openapi.json"
		if err != nil {
			writeProblem(w, mapError(r.Context(), err, subject{}))
			return
		}
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
		_, _ = w.Write(text)
	})
}
