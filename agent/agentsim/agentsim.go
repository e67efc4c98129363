// Package agentsim runs many agents in one process: the real link, with an engine that reports every state as applied at
// once, or one that works on a Cluster in memory. It is for benchmarks and tests of a server.
//
// It needs no real cluster. All agents of a fleet share their metrics and their unpacked bundles, so that a benchmark
// measures the server and the protocol.
package agentsim

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/wire"
)

// Config configures a Fleet.
type Config struct {
	// Address and CAFile are those of kedge-agent.
	Address, CAFile string
	// Applied, when not nil, is called for every desired state that an agent has applied. It must not block.
	Applied func(a *Agent, target fleet.TargetID, d fleet.Desired)
	// Log may be nil; Metrics may be nil too.
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Fleet is a group of simulated agents.
type Fleet struct {
	cfg       Config
	metrics   *link.Metrics
	unpacking singleflight.Group
	unpacked  sync.Map // digest -> *manifest.Set
}

// New returns a fleet without agents.
func New(cfg Config) (*Fleet, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	metrics, err := link.NewMetrics(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	return &Fleet{cfg: cfg, metrics: metrics}, nil
}

// Agent is one simulated agent.
type Agent struct {
	Replica string
	fleet   *Fleet
	client  *link.Client
}

// Agent returns an agent. It connects when Run is called. It writes rotated tokens to its token file, as kedge-agent does.
func (f *Fleet) Agent(replica, tokenFile string) (*Agent, error) {
	return f.agent(replica, tokenFile, nil)
}

// AgentIn returns an agent process that works on a cluster. It starts with the objects and inventories that the previous
// process has left there. At most one process of a cluster may run at a time.
func (f *Fleet) AgentIn(c *Cluster, replica, tokenFile string) (*Agent, error) {
	return f.agent(replica, tokenFile, c)
}

func (f *Fleet) agent(replica, tokenFile string, c *Cluster) (*Agent, error) {
	a := &Agent{Replica: replica, fleet: f}
	welcomed := func(context.Context, wire.Welcome) (link.Engine, []engine.Held, error) { return a, nil, nil }
	hello := wire.Hello{AgentVersion: "simulated", KubeVersion: "none", Replica: replica}
	if c != nil {
		hello.ClusterUID = c.uid
		e := newFakeEngine(c, replica, func(s engine.Status) { a.client.Status(s) })
		welcomed = func(context.Context, wire.Welcome) (link.Engine, []engine.Held, error) { return e, c.recovered(), nil }
	}
	var err error
	a.client, err = link.New(link.Config{
		Address: f.cfg.Address, CAFile: f.cfg.CAFile, Tokens: link.TokenFile(tokenFile),
		Hello:    func(context.Context) wire.Hello { return hello },
		Welcomed: welcomed, Unpack: f.unpack, Log: f.cfg.Log, Metrics: f.metrics,
	})
	return a, err
}

// Run keeps the agent connected until ctx ends.
func (a *Agent) Run(ctx context.Context) error { return a.client.Run(ctx) }

// Ready returns nil while the agent is connected.
func (a *Agent) Ready(ctx context.Context) error { return a.client.Ready(ctx) }

// Set implements link.Engine. It reports the state as applied.
func (a *Agent) Set(d engine.Desired) {
	s := engine.Status{Target: d.Target, Observed: fleet.Observed{
		Version: d.State.Version, Digest: d.State.Digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, Reason: fleet.ReasonSynced, AsOf: time.Now(),
	}}
	switch {
	case d.State.Tombstone:
		s.Observed.Sync, s.Observed.Reason = fleet.SyncDeleted, fleet.ReasonDeleted
	case d.State.Detached:
		s.Observed.Sync, s.Observed.Reason, s.Observed.Digest = fleet.SyncDetached, fleet.ReasonDetached, ""
	default:
		for _, o := range d.Objects.Objects() {
			s.Objects = append(s.Objects, fleet.ObjectStatus{ObjectRef: o.Ref, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, Reason: fleet.ReasonSynced})
		}
	}
	a.client.Status(s)
	if a.fleet.cfg.Applied != nil {
		a.fleet.cfg.Applied(a, d.Target, d.State)
	}
}

// Pending implements link.Engine. Nothing is pruned.
func (a *Agent) Pending(int) {}

// Report sends a status of a target, for benchmarks with many statuses.
func (a *Agent) Report(target fleet.TargetID, observed fleet.Observed, objects []fleet.ObjectStatus) {
	a.client.Status(engine.Status{Target: target, Observed: observed, Objects: objects})
}

// unpack unpacks a bundle once for the whole fleet.
func (f *Fleet) unpack(digest string, zstd []byte) (*manifest.Set, error) {
	if set, ok := f.unpacked.Load(digest); ok {
		return set.(*manifest.Set), nil
	}
	set, err, _ := f.unpacking.Do(digest, func() (any, error) {
		set, err := manifest.Unpack(digest, zstd, wire.MaxBundleContent)
		if err == nil {
			f.unpacked.Store(digest, set)
		}
		return set, err
	})
	if err != nil {
		return nil, err
	}
	return set.(*manifest.Set), nil
}
