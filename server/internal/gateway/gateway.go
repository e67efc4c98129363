package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/kedge-dev/kedge/internal/backoff"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/pause"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Control is what the gateway needs from the room that decides. Its methods are safe for
// concurrent use.
type Control interface {
	// AuthenticateAgentToken fails with auth.ErrUnauthenticated for a token that lets nobody in.
	AuthenticateAgentToken(ctx context.Context, token string) (fleet.Agent, fleet.Tenant, fleet.AgentToken, error)
	AgentConnected(ctx context.Context, c fleet.Connection) error
	AgentDisconnected(ctx context.Context, c fleet.Connection, lastSeen time.Time) error
	// AgentCapable records what the agent's cluster offers to charts.
	AgentCapable(ctx context.Context, agent fleet.Agent, c fleet.Capabilities) error
	// TargetsOf returns the newest rows of the agent's targets, of whatever tenant, tombstones and
	// what is detached included; nil ids mean all of them.
	TargetsOf(ctx context.Context, agent fleet.Agent, ids []fleet.TargetID) ([]control.AgentTarget, error)
	// AgentAhead tells that an agent holds a newer version of a target than the server.
	AgentAhead(ctx context.Context, agent fleet.Agent, target fleet.TargetID, has fleet.Version) error
	// Bundle fails with store.ErrNotFound.
	Bundle(ctx context.Context, tenant fleet.TenantID, digest string) (fleet.Bundle, error)
	// BundleOwner returns whose bundle a target of the agent names, or store.ErrNotFound.
	BundleOwner(ctx context.Context, agent fleet.Agent, digest string) (fleet.TenantID, error)
	// Report writes a batch; either all of it or none.
	Report(ctx context.Context, batch []control.AgentReports) error
	// FollowChanges calls fn with every batch of changes that was committed after the server
	// started, and blocks until ctx ends.
	FollowChanges(ctx context.Context, fn func([]store.Change)) error
	Rotations
}

// Rotations is how agents get new tokens over their own connections.
type Rotations interface {
	// RotationOf returns the agent that an open rotation is for, "" for any other operation.
	RotationOf(ctx context.Context, tenant fleet.TenantID, op fleet.OperationID) (fleet.AgentID, error)
	// OpenRotation returns the rotation that waits for an agent, "" when there is none. One whose new
	// token is the one that the agent has come with is completed.
	OpenRotation(ctx context.Context, agent fleet.Agent, with fleet.TokenID) (fleet.OperationID, error)
	// BeginRotation makes the new token; it is "" when another session of the agent is at it. The
	// caller calls end when its part is over.
	BeginRotation(ctx context.Context, agent fleet.Agent, op fleet.OperationID) (token string, end func(), err error)
	TokenRotationFailed(ctx context.Context, agent fleet.Agent, op fleet.OperationID, message string) error
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
	// RecheckEvery is the backstop for a lost revocation: tokens of open connections are looked at
	// again; 10 min when zero.
	RecheckEvery time.Duration
	// Writers is how many batches of statuses are written at once; 1 when zero, which is right for a
	// store with one writer.
	Writers int
	// Arrivals is how many agents are let in at once; 16 when zero.
	Arrivals int
	// Limits of what one agent may ask for; zero fields take their defaults.
	Limits Limits
	// MaxIdle is after what time a connection without a stream is closed; 1 min when zero.
	MaxIdle time.Duration
	// Version of the server, told to agents.
	Version string
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Gateway serves agents. Make it with New, register it with a gRPC server and Run it.
type Gateway struct {
	agentv1.UnimplementedAgentServiceServer

	cfg       Config
	control   Control
	log       *slog.Logger
	metrics   *metrics
	bundles   *bundleCache
	intake    *intake
	closing   *closings
	limiters  *limiters
	failures  *failures
	rotations *rotations
	rechecks  *rechecks
	// checks bounds how many tokens of new streams are looked up at once; rechecks have places of their own. These places are not those of loads, so that
	// who knocks does not hold up who is being let in.
	checks chan struct{}
	// arrivals bounds how many agents are being let in, from their Hello to their Welcome. Who was let in
	// is seen through: when a whole fleet comes at once, serving everybody a little would have everybody
	// lose patience and begin anew. Nobody has such a place while the gateway waits for the agent.
	arrivals chan struct{}
	// loads bounds how many sessions ask control at once: a commit that changes every target
	// wakes every session in the same moment.
	loads chan struct{}
	// large bounds how many large bundles are on their way inside Desired at once.
	large chan struct{}
	// worked counts sessions, desired states and statuses: what makes garbage.
	worked atomic.Int64

	// credentials counts what was heard about tokens and agents: what is heard between the look at a token and
	// the beginning of its session has to be looked at again.
	credentials atomic.Int64

	mu       sync.Mutex
	sessions map[fleet.AgentID]map[*session]struct{}
	tenants  map[fleet.TenantID]int // sessions
	count    int
	stopping bool
	empty    chan struct{} // closed when stopping and the last session has gone
}

// retryBackoff paces retries after a failure of the server, for example while the database restarts, which takes
// seconds.
var retryBackoff = backoff.Backoff{Min: 250 * time.Millisecond, Max: 2 * time.Second}

const (
	concurrentChecks   = 8
	concurrentArrivals = 16
	concurrentLoads    = 16
	concurrentLarge    = 64
)

// New makes a gateway that asks control.
func New(cfg Config, control Control) (*Gateway, error) {
	cfg.Lease = cmp.Or(cfg.Lease, 30*time.Second)
	cfg.MaxAge = cmp.Or(cfg.MaxAge, 2*time.Hour)
	cfg.StopGrace = cmp.Or(cfg.StopGrace, 5*time.Second)
	cfg.RecheckEvery = cmp.Or(cfg.RecheckEvery, 10*time.Minute)
	cfg.MaxIdle = cmp.Or(cfg.MaxIdle, time.Minute)
	cfg.Writers = max(1, cfg.Writers)
	if cfg.Lease < 100*time.Millisecond {
		return nil, fmt.Errorf("lease of %s is too short: 100ms is the least", cfg.Lease)
	}
	if cfg.Log == nil || cfg.Metrics == nil {
		return nil, errors.New("the gateway needs a logger and a metrics registry")
	}
	g := &Gateway{
		cfg: cfg, control: control, log: cfg.Log.With(obs.KeyComponent, "gateway"),
		checks:   make(chan struct{}, concurrentChecks),
		arrivals: make(chan struct{}, cmp.Or(cfg.Arrivals, concurrentArrivals)),
		loads:    make(chan struct{}, concurrentLoads), large: make(chan struct{}, concurrentLarge),
		sessions: map[fleet.AgentID]map[*session]struct{}{}, tenants: map[fleet.TenantID]int{},
		empty: make(chan struct{}),
	}
	var err error
	if g.metrics, err = newMetrics(cfg.Metrics); err != nil {
		return nil, fmt.Errorf("registering the gateway's metrics: %w", err)
	}
	g.bundles = newBundleCache(func(ctx context.Context, tenant fleet.TenantID, digest string) (fleet.Bundle, error) {
		g.metrics.bundlesLoaded.Inc()
		return control.Bundle(ctx, tenant, digest)
	})
	g.intake = newIntake(control.Report, cfg.Writers, g.log, g.metrics)
	g.closing = newClosings(control.AgentDisconnected, g.log)
	g.limiters = newLimiters(cfg.Limits, g.metrics)
	g.failures = newFailures(g.limiters.limits.WrongTokens, g.metrics)
	g.rotations, g.rechecks = newRotations(g), newRechecks(g)
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

	var watchers sync.WaitGroup
	watchers.Go(func() { g.rotations.run(ctx) })
	watchers.Go(func() { g.rechecks.run(ctx) })
	watchers.Go(func() { g.tidy(ctx) })
	g.follow(ctx)
	watchers.Wait()
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
		pause.For(ctx, retryBackoff.Delay(attempt))
		// Whatever was committed in between may have gone unseen.
		g.credentials.Add(1)
		g.each(func(s *session) {
			s.mark(func(t *todo) { t.all = true })
			g.rechecks.add(s)
		})
		if errors.Is(err, control.ErrRewound) {
			g.greetAnew()
		}
	}
}

// greetAnew has every agent connect again, which tells the server anew who is connected, what they hold and how
// it is: the database has lost what it knew of that.
func (g *Gateway) greetAnew() {
	g.mu.Lock()
	n := g.count
	g.mu.Unlock()
	g.each(func(s *session) {
		s.sayGoodbye("the server's database went back to an earlier state", reconnectWithin(n))
	})
}

func (g *Gateway) dispatch(changes []store.Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range changes {
		agent := c.AgentID
		switch c.Kind {
		case store.ChangeAgent:
			agent = fleet.AgentID(c.ID)
		case store.ChangeOperation:
			if g.tenants[c.TenantID] > 0 {
				g.rotations.look(c.TenantID, fleet.OperationID(c.ID))
			}
			continue
		}
		if c.Kind == store.ChangeToken || c.Kind == store.ChangeAgent {
			g.credentials.Add(1)
		}
		for s := range g.sessions[agent] {
			switch c.Kind {
			case store.ChangeDesired:
				s.markDirty(fleet.TargetID(c.ID), c.At)
			case store.ChangeToken, store.ChangeAgent:
				g.rechecks.add(s)
			}
		}
	}
}
