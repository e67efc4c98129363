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

// replica is one process of an agent. While it leads it has an engine and is connected as the agent;
// otherwise it is connected so that it is known, and waits.
type replica struct {
	cfg     Config
	fenced  *rest.Config // of what changes the cluster: nothing passes unless this replica leads
	secrets dynamic.ResourceInterface
	elector *lease.Elector
	home    *home
	rules   *rules
	link    link.Config // what leading and following have in common
	// watchCluster calls changed after each change of what the cluster offers, until ctx ends.
	watchCluster func(ctx context.Context, changed func()) error
	// forgetCluster has what the cluster offers read anew before the server is told.
	forgetCluster func()

	begun time.Time

	mu     sync.Mutex
	client *link.Client
}

func newReplica(cfg Config, cluster *rest.Config, home *home, rules *rules, common link.Config) (*replica, error) {
	cluster = rest.CopyConfig(cluster)
	cluster.QPS = -1 // a limit by rate would delay a renewal behind what is read at the start
	client, err := dynamic.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the cluster: %w", err)
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
	keeper, err := dynamic.NewForConfig(fenced)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the cluster: %w", err)
	}
	return &replica{
		cfg: cfg, begun: time.Now(), fenced: fenced, elector: elector, home: home, rules: rules, link: common,
		secrets: keeper.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(cfg.Namespace),
	}, nil
}

// register adds what can be measured of a replica.
func (r *replica) register(to prometheus.Registerer) error {
	return to.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kedge_agent_leads", Help: "1 while this replica leads, 0 while another one does or nobody can tell.",
	}, func() float64 {
		if r.elector.Leads() {
			return 1
		}
		return 0
	}))
}

// run leads or follows until ctx ends.
func (r *replica) run(ctx context.Context) error { return r.elector.Run(ctx, r.begin, r.follow) }

// ready returns what is in the way of this replica, nil when nothing is.
func (r *replica) ready(ctx context.Context) error {
	r.mu.Lock()
	client := r.client
	r.mu.Unlock()
	if client == nil {
		return errors.Join(r.elector.Problem(), errors.New("it is not known yet which replica leads"))
	}
	return errors.Join(r.elector.Problem(), client.Ready(ctx))
}

// show makes client the one that says whether this replica is ready.
func (r *replica) show(client *link.Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.client = client
}

// identify lets the replicas in this namespace know whether they are of one agent.
func (r *replica) identify(w wire.Welcome) {
	r.elector.Identify(fmt.Sprintf("%s/%s (%s)", w.Tenant, w.AgentName, w.AgentID))
}

// undecided is how long a replica that has just started says nothing of itself: within it the only one
// leads, and connects once, as the leader.
const undecided = 1500 * time.Millisecond

// follow is connected as one that waits.
func (r *replica) follow(ctx context.Context) error {
	if !wait.For(ctx, time.Until(r.begun.Add(undecided))) {
		return nil
	}
	cfg := r.link
	cfg.Standby, cfg.Welcomed = true, r.identify
	client, err := link.New(cfg)
	if err != nil {
		return err
	}
	r.show(client)
	return client.Run(ctx)
}

// reign is what a replica does from when it begins to lead until another one may have: its engine works
// on, also while the API server is away. It is connected as the agent while it leads.
type reign struct {
	replica *replica
	host    *engineHost
	client  *link.Client
	resumed bool // what was kept was looked for
}

// begin implements what lease.Elector.Run asks for. Whatever changes the cluster ends with ctx, at once:
// when another replica leads there is no time for good order.
func (r *replica) begin(ctx context.Context) (lease.Term, error) {
	var client *link.Client
	store, err := offlinecache.New(offlinecache.Config{
		Secrets: r.secrets, Budget: r.cfg.OfflineBudget, Log: r.cfg.Log.With(obs.KeyComponent, "offlinecache"),
		Skipped: func(d engine.Desired, message string) {
			client.Event(d.Target, fleet.Event{At: time.Now(), Type: fleet.EventWarning, Reason: "NotKeptOffline", Deployment: d.Deployment, Message: message})
		},
	})
	if err != nil {
		return nil, err
	}
	host := &engineHost{cfg: r.cfg, cluster: r.fenced, rules: r.rules, offline: store, failed: make(chan error, 1), life: ctx}
	cfg := r.link
	cfg.Attach, cfg.Detach = host.attach, host.detach
	cfg.Refused = host.refused
	begun := &reign{replica: r, host: host}
	cfg.Away = begun.resume // the cluster may not have answered before
	cfg.Welcomed = func(w wire.Welcome) {
		r.identify(w)
		host.welcomed(w)
	}
	if client, err = link.New(cfg); err != nil {
		return nil, err
	}
	r.home.Reporter = client
	host.reporter = &keeper{Reporter: r.home, offline: store}
	begun.client = client
	return begun, nil
}

// Run implements lease.Term.
func (r *reign) Run(ctx context.Context) error {
	return stage.Run(ctx,
		stage.Stage{Name: "capabilities", Run: func(ctx context.Context) error { return r.replica.watchCluster(ctx, r.client.CapabilitiesChanged) }},
		stage.Stage{Name: "offline cache", Run: r.host.offline.Run},
		stage.Stage{Name: "engine", Run: r.host.run},
	)
}

// Lead implements lease.Term.
func (r *reign) Lead(ctx context.Context) error {
	r.resume(ctx)
	r.host.retry()
	r.replica.forgetCluster()
	r.replica.show(r.client)
	err := r.client.Run(ctx)
	// The fence is shut. When it opens again, the engine is faster than the server.
	r.client.Doubt()
	return err
}

// resume goes on with what was kept, unless that was done.
func (r *reign) resume(ctx context.Context) {
	if !r.resumed {
		r.resumed = r.host.resume(ctx, r.client)
	}
}

// keeper passes the engine's status reports to the offline cache.
type keeper struct {
	engine.Reporter
	offline *offlinecache.Cache
}

// Status implements engine.Reporter.
func (k *keeper) Status(s engine.Status) {
	k.offline.Status(s)
	k.Reporter.Status(s)
}
