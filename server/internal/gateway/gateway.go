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

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Control reads and records on behalf of the gateway. Its methods are safe for concurrent use.
type Control interface {
	// AuthenticateAgentToken returns auth.ErrUnauthenticated for an invalid token.
	AuthenticateAgentToken(ctx context.Context, token string) (fleet.Agent, fleet.Tenant, fleet.AgentToken, error)
	AgentConnected(ctx context.Context, c fleet.Connection) error
	AgentDisconnected(ctx context.Context, c fleet.Connection, lastSeen time.Time) error
	// AgentCapable records the capabilities of the agent's cluster, which are input of Helm charts.
	AgentCapable(ctx context.Context, agent fleet.Agent, c fleet.Capabilities) error
	// AgentApplications records the Applications of Argo CD that the agent does not manage.
	AgentApplications(ctx context.Context, agent fleet.Agent, l fleet.ForeignApplications) error
	// PushEnvironments returns the push environments that an engine instance serves, with their credentials.
	PushEnvironments(ctx context.Context, agent fleet.Agent) ([]fleet.PushEnvironment, error)
	// EndpointsChecked records what an engine instance found at the API servers of its push environments.
	EndpointsChecked(ctx context.Context, agent fleet.Agent, checks []fleet.EnvironmentCheck) error
	// TargetsOf returns the newest rows of the agent's targets in all tenants, including tombstones and detached
	// targets. nil ids selects all targets.
	TargetsOf(ctx context.Context, agent fleet.Agent, ids []fleet.TargetID) ([]control.AgentTarget, error)
	// AgentAhead records that an agent has a newer version of a target than the server.
	AgentAhead(ctx context.Context, agent fleet.Agent, target fleet.TargetID, has fleet.Version) error
	// Bundle returns store.ErrNotFound for a bundle that does not exist.
	Bundle(ctx context.Context, tenant fleet.TenantID, digest string) (fleet.Bundle, error)
	// BundleOwner returns the tenant of a bundle that a target of the agent refers to, or store.ErrNotFound.
	BundleOwner(ctx context.Context, agent fleet.Agent, digest string) (fleet.TenantID, error)
	// Report writes the whole batch or nothing.
	Report(ctx context.Context, batch []control.AgentReports) error
	// FollowChanges calls fn with every batch of changes that is committed after the server started. It returns
	// when ctx ends.
	FollowChanges(ctx context.Context, fn func([]store.Change)) error
	Rotations
}

// Rotations replaces the tokens of agents over their own connections.
type Rotations interface {
	// RotationOf returns the agent of an open rotation, or "" for any other operation.
	RotationOf(ctx context.Context, tenant fleet.TenantID, op fleet.OperationID) (fleet.AgentID, error)
	// OpenRotation returns the open rotation of an agent, or "" if there is none. It completes a rotation whose
	// new token is the one that the agent authenticated with.
	OpenRotation(ctx context.Context, agent fleet.Agent, with fleet.TokenID) (fleet.OperationID, error)
	// BeginRotation creates the new token. The token is "" while another session of the agent handles the
	// rotation. The caller calls end when it no longer handles the rotation.
	BeginRotation(ctx context.Context, agent fleet.Agent, op fleet.OperationID) (token string, end func(), err error)
	TokenRotationFailed(ctx context.Context, agent fleet.Agent, op fleet.OperationID, message string) error
}

// Config configures a Gateway.
type Config struct {
	// Lease is how long a session stays open without a frame from the agent; default 30 s.
	Lease time.Duration
	// MaxAge is the age, give or take a tenth, at which a connection ends with a Goodbye. The agent connects
	// again, so that agents spread over the replicas of the server. Default 2 h.
	MaxAge time.Duration
	// StopGrace limits how long Run waits for sessions to end; default 5 s.
	StopGrace time.Duration
	// RecheckEvery is the interval at which the gateway checks the tokens of open sessions again, in case it
	// missed a revocation; default 10 min.
	RecheckEvery time.Duration
	// Writers is the number of status batches that are written concurrently; default 1, for a store with one
	// writer.
	Writers int
	// Handshakes limits the agents that complete their handshake concurrently; default 16.
	Handshakes int
	// Limits are the rate limits of one agent. Zero fields have defaults.
	Limits Limits
	// MaxIdle is how long a connection without a stream stays open; default 1 min.
	MaxIdle time.Duration
	// ServerID is the ID of this server, for tunnels that arrive at another one; "" if there are no others.
	ServerID string
	// Version is the server's version. Agents receive it.
	Version string
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Gateway serves agents. Create it with New, register it with a gRPC server, and call Run.
type Gateway struct {
	agentv1.UnimplementedAgentServiceServer

	cfg           Config
	control       Control
	log           *slog.Logger
	metrics       *metrics
	bundles       *bundleCache
	intake        *intake
	disconnects   *disconnects
	limiters      *limiters
	tokenFailures *tokenFailures
	rotations     *rotations
	rechecks      *rechecks
	slots         slots
	sessions      *registry
	tunnels       *tunnels
	// activity counts sessions, desired states and statuses. See releaseMemory.
	activity atomic.Int64
	// credentialVersion counts the changes of tokens and agents. A session whose token was checked at an older version
	// checks it again.
	credentialVersion atomic.Int64
}

// slots limits concurrent work. An element in a channel is a slot in use.
type slots struct {
	// lookups limits the token lookups of new streams. They do not share slots with the calls to control, so that
	// unauthenticated callers do not delay agents that complete their handshake. Rechecks have goroutines of their own.
	lookups chan struct{}
	// handshakes limits the agents between Hello and Welcome. The gateway completes a handshake that it started: if a
	// whole fleet connects at once and every agent is served a little, all of them time out and start again. No agent
	// has a slot while the gateway waits for its Hello.
	handshakes chan struct{}
	// control limits the sessions that call control: a commit that changes every target wakes every session at once.
	control chan struct{}
	// largeBundles limits the large bundles that are being sent inside Desired.
	largeBundles chan struct{}
}

func newSlots(handshakes int) slots {
	return slots{
		lookups:      make(chan struct{}, concurrentLookups),
		handshakes:   make(chan struct{}, cmp.Or(handshakes, concurrentHandshakes)),
		control:      make(chan struct{}, concurrentControlCalls),
		largeBundles: make(chan struct{}, concurrentLargeBundles),
	}
}

// retryDelay paces retries after a failure of the server, for example while the database restarts, which takes
// seconds.
func retryDelay(attempt int) time.Duration {
	return wait.Jitter(wait.Delay(250*time.Millisecond, 2*time.Second, attempt), 0.5)
}

const (
	concurrentLookups      = 8
	concurrentHandshakes   = 16
	concurrentControlCalls = 16
	concurrentLargeBundles = 64
)

// New returns a gateway that uses control.
func New(cfg Config, control Control) (*Gateway, error) {
	cfg.Lease = cmp.Or(cfg.Lease, 30*time.Second)
	cfg.MaxAge = cmp.Or(cfg.MaxAge, 2*time.Hour)
	cfg.StopGrace = cmp.Or(cfg.StopGrace, 5*time.Second)
	cfg.RecheckEvery = cmp.Or(cfg.RecheckEvery, 10*time.Minute)
	cfg.MaxIdle = cmp.Or(cfg.MaxIdle, time.Minute)
	cfg.Writers = max(1, cfg.Writers)
	if cfg.Lease < 100*time.Millisecond {
		return nil, fmt.Errorf("a lease of %s is too short: the minimum is 100ms", cfg.Lease)
	}
	if cfg.Log == nil || cfg.Metrics == nil {
		return nil, errors.New("the gateway needs a logger and a metrics registry")
	}
	g := &Gateway{
		cfg: cfg, control: control, log: cfg.Log.With(obs.KeyComponent, "gateway"),
		slots: newSlots(cfg.Handshakes),
	}
	var err error
	if g.metrics, err = newMetrics(cfg.Metrics); err != nil {
		return nil, fmt.Errorf("registering the gateway's metrics: %w", err)
	}
	g.sessions = newRegistry(g.metrics.connected)
	g.rechecks = newRechecks(g)
	g.tunnels = newTunnels(g.rechecks)
	g.bundles = newBundleCache(func(ctx context.Context, tenant fleet.TenantID, digest string) (fleet.Bundle, error) {
		g.metrics.bundlesLoaded.Inc()
		return control.Bundle(ctx, tenant, digest)
	})
	g.intake = newIntake(control.Report, cfg.Writers, g.log, g.metrics)
	g.disconnects = newDisconnects(control.AgentDisconnected, g.log)
	g.limiters = newLimiters(cfg.Limits, g.metrics)
	g.tokenFailures = newTokenFailures(g.limiters.limits.InvalidTokens, g.metrics)
	g.rotations = newRotations(g)
	return g, nil
}

// Register adds the service to a gRPC server.
func (g *Gateway) Register(r grpc.ServiceRegistrar) { agentv1.RegisterAgentServiceServer(r, g) }

// Run dispatches changes and writes statuses until ctx ends. Then it sends Goodbye to every agent, writes the
// statuses that it has received, and returns.
func (g *Gateway) Run(ctx context.Context) error {
	// The writers outlive ctx, because sessions report until drain returns.
	rest, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	writers, rest := errgroup.WithContext(rest)
	writers.Go(func() error { return g.intake.run(rest) })
	writers.Go(func() error { return g.disconnects.run(rest) })

	var watchers sync.WaitGroup
	watchers.Go(func() { g.rotations.run(ctx) })
	watchers.Go(func() { g.rechecks.run(ctx) })
	watchers.Go(func() { g.releaseMemory(ctx) })
	g.follow(ctx)
	watchers.Wait()
	g.drain()
	stop()
	_ = writers.Wait() // stop ends both, without an error
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.cfg.StopGrace)
	defer cancel()
	return errors.Join(g.intake.flush(last), g.disconnects.flush(last))
}

// follow dispatches changes until ctx ends.
func (g *Gateway) follow(ctx context.Context) {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		err := g.control.FollowChanges(ctx, func(changes []store.Change) {
			attempt = 0
			g.dispatch(changes)
		})
		if ctx.Err() != nil {
			return
		}
		g.log.Warn("following the change feed failed, retrying", obs.Err(err))
		wait.For(ctx, retryDelay(attempt))
		// Changes that were committed in between may be lost.
		g.credentialVersion.Add(1)
		g.sessions.forEach(func(s *session) {
			s.schedule(func(w *pendingWork) { w.all = true })
			g.rechecks.add(s)
		})
		g.tunnels.recheckAll()
		if errors.Is(err, control.ErrRewound) {
			g.reconnectAll()
		}
	}
}

// reconnectAll makes every agent connect again. When the database went back to an earlier state, its records of
// connections and statuses are outdated. Agents send both when they connect.
func (g *Gateway) reconnectAll() {
	n := g.sessions.len()
	g.sessions.forEach(func(s *session) {
		s.scheduleGoodbye("the database of the server was restored to an earlier state", reconnectWithin(n))
	})
}

// recheckAgent checks the tokens of an agent again.
func (g *Gateway) recheckAgent(id fleet.AgentID) {
	g.credentialVersion.Add(1)
	g.sessions.forEachOf(id, func(s *session) { g.rechecks.add(s) })
	g.tunnels.recheck(id)
}

// dispatch passes changes on to the sessions that they concern.
func (g *Gateway) dispatch(changes []store.Change) {
	for _, c := range changes {
		switch c.Kind {
		case store.ChangeDesired:
			g.sessions.forEachOf(c.AgentID, func(s *session) { s.markDirty(fleet.TargetID(c.ID), c.At) })
		case store.ChangeToken:
			g.recheckAgent(c.AgentID)
		case store.ChangeAgent:
			g.recheckAgent(fleet.AgentID(c.ID))
		case store.ChangeEnvironment:
			g.sessions.forEachOfTenant(c.TenantID, func(s *session) {
				if s.agent.Instance {
					s.schedule(func(w *pendingWork) { w.environments = true })
				}
			})
		case store.ChangeCredential, store.ChangeRepository:
			g.sessions.forEachOfTenant(c.TenantID, func(s *session) {
				if s.agent.EngineNamespace != "" {
					s.schedule(func(w *pendingWork) { w.all = true })
				}
			})
		case store.ChangeOperation:
			if g.sessions.hasTenant(c.TenantID) {
				g.rotations.add(c.TenantID, fleet.OperationID(c.ID))
			}
		}
	}
}
