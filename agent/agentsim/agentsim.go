// Package agentsim runs many agents in one process: the real link, with an engine that takes
// everything for applied the moment it arrives, or one that works on a Cluster in memory. It is for
// benchmarks and tests of a server.
//
// It touches no real cluster. All agents of a fleet share their metrics and the bundles they have
// opened, so that what is measured is the server and the wire.
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
	// Applied, when not nil, is told of every desired state that an agent has taken up. It must
	// not block.
	Applied func(a *Agent, target fleet.TargetID, d fleet.Desired)
	// Log discards when nil; Metrics are kept to itself when nil.
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Fleet makes agents that belong together.
type Fleet struct {
	cfg     Config
	metrics *link.Metrics
	opening singleflight.Group
	opened  sync.Map // digest -> *manifest.Set
}

// New makes a fleet with no agent in it.
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

// Agent makes an agent; it connects when it is run. A token that the server rotates is written to
// its file, as kedge-agent does.
func (f *Fleet) Agent(replica, tokenFile string) (*Agent, error) {
	return f.agent(replica, tokenFile, nil)
}

// AgentIn makes an agent that works on a cluster, and begins with what the one before it has left
// there: a process of kedge-agent. At most one of a cluster may be run at a time.
func (f *Fleet) AgentIn(c *Cluster, replica, tokenFile string) (*Agent, error) {
	return f.agent(replica, tokenFile, c)
}

func (f *Fleet) agent(replica, tokenFile string, c *Cluster) (*Agent, error) {
	a := &Agent{Replica: replica, fleet: f}
	welcomed := func(context.Context, wire.Welcome) (link.Engine, []engine.Held, error) { return a, nil, nil }
	hello := wire.Hello{AgentVersion: "simulated", KubeVersion: "none", Replica: replica}
	if c != nil {
		hello.ClusterUID = c.uid
		h := newHand(c, replica, func(s engine.Status) { a.client.Status(s) })
		welcomed = func(context.Context, wire.Welcome) (link.Engine, []engine.Held, error) { return h, c.held(), nil }
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

// Set implements link.Engine: what is desired is so at once.
func (a *Agent) Set(d engine.Desired) {
	s := engine.Status{Target: d.Target, Observed: fleet.Observed{
		Version: d.State.Version, Digest: d.State.Digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: time.Now(),
	}}
	switch {
	case d.State.Tombstone:
		s.Observed.Sync = fleet.SyncDeleted
	case d.State.Detached:
		s.Observed.Sync, s.Observed.Digest = fleet.SyncDetached, ""
	default:
		for _, o := range d.Objects.Objects() {
			s.Objects = append(s.Objects, fleet.ObjectStatus{ObjectRef: o.Ref, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent})
		}
	}
	a.client.Status(s)
	if a.fleet.cfg.Applied != nil {
		a.fleet.cfg.Applied(a, d.Target, d.State)
	}
}

// Pending implements link.Engine: nothing is ever pruned.
func (a *Agent) Pending(int) {}

// Report sends a status of a target as an engine would, for storms of them.
func (a *Agent) Report(target fleet.TargetID, observed fleet.Observed, objects []fleet.ObjectStatus) {
	a.client.Status(engine.Status{Target: target, Observed: observed, Objects: objects})
}

// unpack opens a bundle once for the whole fleet.
func (f *Fleet) unpack(digest string, zstd []byte) (*manifest.Set, error) {
	if set, ok := f.opened.Load(digest); ok {
		return set.(*manifest.Set), nil
	}
	set, err, _ := f.opening.Do(digest, func() (any, error) {
		set, err := manifest.Unpack(digest, zstd, wire.MaxBundleContent)
		if err == nil {
			f.opened.Store(digest, set)
		}
		return set, err
	})
	if err != nil {
		return nil, err
	}
	return set.(*manifest.Set), nil
}
