package restapi

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
)

const (
	base   = "/api/v1"
	tenant = base + "/tenants/{tenant}"

	// maxBody limits the body of a request; no valid request comes near it.
	maxBody = 1 << 20
	// bodyTimeout is generous, because it also limits the handler: net/http ends the context of a request when
	// the read deadline passes.
	bodyTimeout = 60 * time.Second
)

// Config configures the REST API. Zero fields have defaults.
type Config struct {
	// ExternalURL returns the URL of the server for users and Git hosts, without a trailing slash. It is a
	// function because a port may be known only after listening.
	ExternalURL func() string
	// AgentAddress returns the address of the server for agents, for enrollment manifests: grpcs://host:port.
	AgentAddress func() string
	// CAPEM is the certificate of the server's own CA; empty with a public CA.
	CAPEM []byte
	// DefaultImage is the agent image of enrollment manifests without one. Without a default, such requests are
	// refused.
	DefaultImage string
	// Version of the server.
	Version string
	// KeepAlive is the interval of comment lines in idle streams, for proxies that close silent connections;
	// default 20 s.
	KeepAlive time.Duration
	// Recheck is how often the server checks whether the callers of streams may still read them, once for each
	// token; default 2 s.
	Recheck time.Duration
	// Login handles logins through an identity provider; nil if there is none.
	Login Login
	// Kube carries requests into the clusters of agents; nil if there is nothing that does.
	Kube Kube
	// PerCaller limits the requests of each token; default 200 per second, with bursts of 400.
	PerCaller Rate
	// PerAddress limits the requests without a valid token of each address; default 20 per second, with bursts
	// of 40.
	PerAddress Rate
	// Streams and LongPolls limit how many of them are open at the same time; zero fields have the defaults of
	// held_requests.go.
	Streams, LongPolls HeldLimit
	// TrustedProxies are the proxies whose X-Forwarded-For is trusted; default none.
	TrustedProxies []netip.Prefix
	// Metrics counts requests and refusals; may be nil.
	Metrics prometheus.Registerer
	// Now is the clock; default time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Login handles logins of people with a browser.
type Login interface {
	// ServeHTTP serves /api/v1/auth/.
	http.Handler
	// SessionToken returns the token of the session cookie, or "".
	SessionToken(r *http.Request) string
}

// Control is the interface to the use cases.
type Control interface {
	// Authenticate returns the caller of a token, or fails with auth.ErrUnauthenticated.
	Authenticate(ctx context.Context, token string) (auth.Principal, error)
	// Reauthenticate does the same for a request that is open.
	Reauthenticate(ctx context.Context, token string) (auth.Principal, error)
	// CreateKubeToken returns a token for requests to clusters, and its expiry.
	CreateKubeToken(ctx context.Context, p auth.Principal) (string, time.Time, error)
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
	accessRuleControl
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
	engineUpgradeControl
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
	hooks   hookLimiter
	streams *heldRequests
	polls   *heldRequests
	// deliveries are the webhooks that had an effect.
	deliveries *deliveries
	pushes     *pushes
}

// New returns the handler of /api/v1/.
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
	a := &api{cfg: cfg, control: control, gate: newGate(cfg), guards: newGuards(cfg.Recheck, control.Reauthenticate), metrics: newMetrics(cfg.Metrics), deliveries: newDeliveries(), pushes: newPushes()}
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
	return a.fromClient(a.observed(a.kube(tidy(outer))))
}

func (a *api) registerAll(mux *http.ServeMux) {
	a.registerWhoami()
	a.registerTenants()
	a.registerFleet()
	a.registerMembers()
	a.registerPeople()
	a.registerAPITokens()
	a.registerKubeToken()
	a.registerAgents()
	a.registerAgentTokens()
	a.registerAgentConfigs()
	a.registerEnvironments()
	a.registerGrants()
	a.registerAccessRules()
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
	a.registerEngineUpgrades()
	a.registerAudit()
	a.registerEvents()
	a.registerDiagnosis()
	a.registerStream(mux)
}

// newSpec returns the OpenAPI document without operations.
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
				"token":      {Type: "http", Scheme: "bearer", Description: "An API token, as printed at the first start of the server, or the token of a session."},
				"agentToken": {Type: "http", Scheme: "bearer", Description: "The token of an agent."},
			},
		},
		Security: []map[string][]string{{"token": {}}},
	}
}

func humaConfig(spec *huma.OpenAPI) huma.Config {
	describeMembers(spec)
	return huma.Config{
		OpenAPI: spec,
		Formats: huma.DefaultFormats,
		// Ignoring a mistyped filter would return a wrong result.
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{tidyProblem},
	}
}

// tidyProblem removes values of the request from problem documents: they may be secrets, and responses end up in logs. It
// gives the invalid requests that huma detects their reason.
func tidyProblem(_ huma.Context, _ string, v any) (any, error) {
	if p, ok := v.(*huma.ErrorModel); ok {
		own := &problemDocument{ErrorModel: *p}
		if p.Status == http.StatusUnprocessableEntity {
			own.Reason = string(fleet.ReasonRequestInvalid)
		}
		v = own
	}
	if p, ok := v.(*problemDocument); ok {
		for _, e := range p.Errors {
			e.Value = nil
		}
	}
	return v, nil
}

// serveSpec writes the OpenAPI document. It encodes the document at the first request, because encoding takes
// longer than the rest of New.
func (a *api) serveSpec() http.Handler {
	encode := sync.OnceValues(func() ([]byte, error) { return json.Marshal(a.huma.OpenAPI()) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		infoFrom(r.Context()).route = base + "/openapi.json"
		text, err := encode()
		if err != nil {
			writeProblem(w, mapError(r.Context(), err, subject{}))
			return
		}
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
		_, _ = w.Write(text)
	})
}
