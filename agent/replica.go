package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin"
	"github.com/kedge-dev/kedge/agent/internal/lease"
	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/agent/internal/offlinecache"
	"github.com/kedge-dev/kedge/internal/agentnames"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/stage"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/internal/wire"
)

// replica is one process of an agent. While it leads it has an engine and is connected as the agent. Otherwise it is
// connected as a standby.
type replica struct {
	cfg     Config
	fenced  *rest.Config // for changes to the cluster: requests fail unless this replica leads
	secrets dynamic.ResourceInterface
	elector *lease.Elector
	parts
	link    link.Config // common part of leader and standby
	started time.Time

	mu     sync.Mutex
	client *link.Client // decides whether this replica is ready; nil before the election
}

// parts are the parts of the agent that do not depend on the leadership.
type parts struct {
	namespace *namespaceCheck
	policy    *policyFile
	info      *clusterInfo
	metrics   *builtin.Metrics
}

func newReplica(cfg Config, cluster *rest.Config, parts parts, common link.Config) (*replica, error) {
	cluster = rest.CopyConfig(cluster)
	cluster.QPS = -1 // a rate limit would delay renewals of the Lease behind the reads at the start
	client, err := dynamic.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("preparing the client for the cluster: %w", err)
	}
	elector, err := lease.New(lease.Config{
		Leases: client.Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).Namespace(cfg.Namespace),
		Name:   agentnames.Lease, Replica: cfg.Replica, Log: cfg.Log.With(obs.KeyComponent, "lease"),
	})
	if err != nil {
		return nil, err
	}
	fenced := rest.CopyConfig(cluster)
	fenced.Wrap(elector.Fence().Wrap)
	fencedClient, err := dynamic.NewForConfig(fenced)
	if err != nil {
		return nil, fmt.Errorf("preparing the client for the cluster: %w", err)
	}
	return &replica{
		cfg: cfg, started: time.Now(), fenced: fenced, elector: elector, parts: parts, link: common,
		secrets: fencedClient.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(cfg.Namespace),
	}, nil
}

// register registers the metrics of a replica.
func (r *replica) register(to prometheus.Registerer) error {
	return to.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kedge_agent_leads", Help: "1 while this replica leads, 0 while another one leads or the leader is not known.",
	}, func() float64 {
		if r.elector.Leads() {
			return 1
		}
		return 0
	}))
}

// run leads or follows until ctx ends.
func (r *replica) run(ctx context.Context) error { return r.elector.Run(ctx, r.newTerm, r.follow) }

// ready returns the problems of this replica, or nil.
func (r *replica) ready(ctx context.Context) error {
	r.mu.Lock()
	client := r.client
	r.mu.Unlock()
	if client == nil {
		return errors.Join(r.elector.Problem(), errors.New("the leader is not known yet"))
	}
	return errors.Join(r.elector.Problem(), client.Ready(ctx))
}

func (r *replica) setClient(client *link.Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.client = client
}

// identify tells the elector which agent this is, so that it can warn when replicas of different agents share a namespace.
func (r *replica) identify(w wire.Welcome) {
	r.elector.Identify(fmt.Sprintf("%s/%s (%s)", w.Tenant, w.AgentName, w.AgentID))
}

// electionGrace is how long a replica that has just started waits before it connects as a standby. A single replica becomes
// the leader in this time, and connects only once.
const electionGrace = 1500 * time.Millisecond

// follow connects as a standby.
func (r *replica) follow(ctx context.Context) error {
	if !wait.For(ctx, time.Until(r.started.Add(electionGrace))) {
		return nil
	}
	cfg := r.link
	cfg.Standby = true
	cfg.Welcomed = func(_ context.Context, w wire.Welcome) (link.Engine, []engine.Held, error) {
		r.identify(w)
		return nil, nil, nil
	}
	client, err := link.New(cfg)
	if err != nil {
		return err
	}
	r.setClient(client)
	return client.Run(ctx)
}

// leaderTerm is the work of a leader. It implements lease.Term. Its engine continues while the API server is unavailable.
// It is connected as the agent while it leads.
type leaderTerm struct {
	replica *replica
	engines *engineRunner
	client  *link.Client
	resumed bool // the offline cache was read
}

func (r *replica) newTerm(context.Context) (lease.Term, error) {
	t := &leaderTerm{replica: r}
	cache, err := offlinecache.New(offlinecache.Config{
		Secrets: r.secrets, Budget: r.cfg.OfflineBudget, Log: r.cfg.Log.With(obs.KeyComponent, "offlinecache"),
		Skipped: func(d engine.Desired, message string) {
			t.client.Event(d.Target, fleet.Event{At: time.Now(), Type: fleet.EventWarning, Reason: fleet.ReasonNotKeptOffline, Deployment: d.Deployment, Message: message})
		},
	})
	if err != nil {
		return nil, err
	}
	t.engines = newEngineRunner(r.cfg, r.fenced, r.parts, cache)
	cfg := r.link
	cfg.Welcomed = func(ctx context.Context, w wire.Welcome) (link.Engine, []engine.Held, error) {
		r.identify(w)
		return t.engines.welcomed(ctx, w)
	}
	cfg.Refused = t.engines.refused
	cfg.Disconnected = t.resume // the API server may not have answered before
	if t.client, err = link.New(cfg); err != nil {
		return nil, err
	}
	t.engines.reporter = func(agent fleet.AgentID) engine.Reporter {
		return cacheReporter{Reporter: r.namespace.reporter(t.client.Reporter(agent)), cache: cache}
	}
	t.engines.applications, t.engines.checks = t.client.ListApplications, t.client.ReportChecks
	return t, nil
}

// Run implements lease.Term.
func (t *leaderTerm) Run(ctx context.Context) error {
	return stage.Run(ctx,
		stage.Stage{Name: "capabilities", Run: func(ctx context.Context) error { return t.replica.info.run(ctx, t.client.CapabilitiesChanged) }},
		stage.Stage{Name: "offline cache", Run: t.engines.offline.Run},
		stage.Stage{Name: "engine", Run: t.engines.run},
	)
}

// Lead implements lease.Term.
func (t *leaderTerm) Lead(ctx context.Context) error {
	t.resume(ctx)
	t.engines.retry(ctx)
	t.replica.info.invalidate()
	t.replica.setClient(t.client)
	err := t.client.Run(ctx)
	// When the fence opens again, the engine works before the server can send a newer state.
	t.client.InvalidateSnapshot()
	return err
}

// resume starts the engine from the offline cache, unless that was done.
func (t *leaderTerm) resume(ctx context.Context) {
	if !t.resumed {
		t.resumed = t.engines.resume(ctx, t.client)
	}
}

// cacheReporter passes the status reports of an engine to the offline cache too.
type cacheReporter struct {
	engine.Reporter
	cache *offlinecache.Cache
}

// Status implements engine.Reporter.
func (r cacheReporter) Status(s engine.Status) {
	r.cache.Status(s)
	r.Reporter.Status(s)
}
