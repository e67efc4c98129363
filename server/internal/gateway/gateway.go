package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Control is what the gateway needs from the room that decides. Its methods are safe for
// concurrent use.
type Control interface {
	// AuthenticateAgent fails with auth.ErrUnauthenticated for a token that lets nobody in.
	AuthenticateAgent(ctx context.Context, token string) (fleet.Agent, fleet.Tenant, error)
	AgentConnected(ctx context.Context, c fleet.Connection) error
	AgentDisconnected(ctx context.Context, c fleet.Connection, lastSeen time.Time) error
	// TargetsOf returns the newest rows of the agent's targets, tombstones included; nil ids mean
	// all of them.
	TargetsOf(ctx context.Context, agent fleet.Agent, ids []fleet.TargetID) ([]fleet.Target, error)
	// AgentAhead tells that an agent holds a newer version of a target than the server.
	AgentAhead(ctx context.Context, agent fleet.Agent, target fleet.TargetID, has fleet.Version) error
	// Bundle fails with store.ErrNotFound.
	Bundle(ctx context.Context, tenant fleet.TenantID, digest string) (fleet.Bundle, error)
	// Report writes a batch; either all of it or none.
	Report(ctx context.Context, batch []control.AgentReports) error
	// FollowChanges calls fn with every batch of changes that was committed after the server
	// started, and blocks until ctx ends.
	FollowChanges(ctx context.Context, fn func([]store.Change)) error
}

// Config configures a Gateway.
type Config struct {
	// Lease is how long a session may be silent; 30 s when zero.
	Lease time.Duration
	// MaxAge is when a connection is ended in good order and made anew, give or take a tenth, so
	// that agents spread over replicas again; 2 h when zero.
	MaxAge time.Duration
	// StopGrace bounds how long Run waits for sessions to end; 5 s when zero.
	StopGrace time.Duration
	// Version of the server, told to agents.
	Version string
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Gateway serves agents. Make it with New, register it with a gRPC server and Run it.
type Gateway struct {
	agentv1.UnimplementedAgentServiceServer

	cfg     Config
	control Control
	log     *slog.Logger
	metrics *metrics
	bundles *bundleCache
	intake  *intake
	closing *closings
	// loads bounds how many sessions ask control at once: a commit that changes every target
	// wakes every session in the same moment.
	loads chan struct{}

	mu       sync.Mutex
	sessions map[fleet.AgentID]map[*session]struct{}
	count    int
	stopping bool
	empty    chan struct{} // closed when stopping and the last session has gone
}

const concurrentLoads = 16

// New makes a gateway that asks control.
func New(cfg Config, control Control) (*Gateway, error) {
	cfg.Lease = cmp.Or(cfg.Lease, 30*time.Second)
	cfg.MaxAge = cmp.Or(cfg.MaxAge, 2*time.Hour)
	cfg.StopGrace = cmp.Or(cfg.StopGrace, 5*time.Second)
	if cfg.Lease < 100*time.Millisecond {
		return nil, fmt.Errorf("lease of %s is too short: 100ms is the least", cfg.Lease)
	}
	if cfg.Log == nil || cfg.Metrics == nil {
		return nil, errors.New("the gateway needs a logger and a metrics registry")
	}
	g := &Gateway{
		cfg: cfg, control: control, log: cfg.Log.With(obs.KeyComponent, "gateway"),
		loads:    make(chan struct{}, concurrentLoads),
		sessions: map[fleet.AgentID]map[*session]struct{}{},
		empty:    make(chan struct{}),
	}
	var err error
	if g.metrics, err = newMetrics(cfg.Metrics); err != nil {
		return nil, fmt.Errorf("registering the gateway's metrics: %w", err)
	}
	g.bundles = newBundleCache(func(ctx context.Context, tenant fleet.TenantID, digest string) (fleet.Bundle, error) {
		g.metrics.bundlesLoaded.Inc()
		return control.Bundle(ctx, tenant, digest)
	})
	g.intake = newIntake(control.Report, g.log, g.metrics)
	g.closing = newClosings(control.AgentDisconnected, g.log)
	return g, nil
}

// Register adds the service to a gRPC server.
func (g *Gateway) Register(r grpc.ServiceRegistrar) { agentv1.RegisterAgentServiceServer(r, g) }

// Run follows changes and writes statuses until ctx ends; then it says goodbye to every agent,
// writes what they have reported, and returns.
func (g *Gateway) Run(ctx context.Context) error {
	// What the sessions leave behind is written after ctx has ended, so the writers outlive it.
	rest, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	writers, rest := errgroup.WithContext(rest)
	writers.Go(func() error { return g.intake.run(rest) })
	writers.Go(func() error { return g.closing.run(rest) })

	g.follow(ctx)
	g.drain()
	stop()
	_ = writers.Wait() // they end by stop alone
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.cfg.StopGrace)
	defer cancel()
	return errors.Join(g.intake.flush(last), g.closing.flush(last))
}

// follow hands changes to sessions until ctx ends.
func (g *Gateway) follow(ctx context.Context) {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		err := g.control.FollowChanges(ctx, func(changes []store.Change) {
			attempt = 0
			g.dispatch(changes)
		})
		if ctx.Err() != nil {
			return
		}
		g.log.Warn("following changes broke off, starting again", obs.Err(err))
		pause(ctx, retryDelay(attempt))
		// Whatever was committed in between may have gone unseen.
		g.each(func(s *session) { s.markAll() })
	}
}

func (g *Gateway) dispatch(changes []store.Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range changes {
		agent := c.AgentID
		if c.Kind == store.ChangeAgent {
			agent = fleet.AgentID(c.ID)
		}
		for s := range g.sessions[agent] {
			switch c.Kind {
			case store.ChangeDesired:
				s.markDirty(fleet.TargetID(c.ID), c.At)
			case store.ChangeToken, store.ChangeAgent:
				s.markRecheck()
			}
		}
	}
}

// each calls fn for every session.
func (g *Gateway) each(fn func(*session)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, sessions := range g.sessions {
		for s := range sessions {
			fn(s)
		}
	}
}

// join adds a session; it reports false when the gateway is stopping.
func (g *Gateway) join(s *session) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return false
	}
	if g.sessions[s.agent.ID] == nil {
		g.sessions[s.agent.ID] = map[*session]struct{}{}
	}
	g.sessions[s.agent.ID][s] = struct{}{}
	g.count++
	g.metrics.connected.Set(float64(g.count))
	return true
}

func (g *Gateway) leave(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.sessions[s.agent.ID][s]; !ok {
		return
	}
	delete(g.sessions[s.agent.ID], s)
	if len(g.sessions[s.agent.ID]) == 0 {
		delete(g.sessions, s.agent.ID)
	}
	g.count--
	g.metrics.connected.Set(float64(g.count))
	if g.stopping && g.count == 0 {
		close(g.empty)
	}
}

// drain says goodbye to every agent and waits for them to go, for a while.
func (g *Gateway) drain() {
	g.mu.Lock()
	g.stopping = true
	n := g.count
	if n == 0 {
		close(g.empty)
	}
	g.mu.Unlock()
	// What has been reported is confirmed before the goodbye: otherwise it would be sent again.
	settling, cancel := context.WithTimeout(context.Background(), g.cfg.StopGrace/4)
	g.intake.settle(settling)
	cancel()
	g.each(func(s *session) { s.sayGoodbye("the server is stopping", reconnectWithin(n)) })
	select {
	case <-g.empty:
	case <-time.After(g.cfg.StopGrace):
		g.each(func(s *session) { s.end(errStopped) })
	}
}

// reconnectWithin spreads the return of n agents to about 500 per second.
func reconnectWithin(n int) time.Duration {
	return max(time.Second, time.Duration(n)*2*time.Millisecond)
}
