package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/internal/wire"
)

// Engine is the part of an engine that a client uses. Its methods do not block.
type Engine interface {
	// Set sets the desired state of one target.
	Set(d engine.Desired)
	// Pending sets how many targets wait for their bundle, or that the snapshot is not complete. The engine does not prune
	// while n is above 0: an object that one target no longer has may belong to a target that has not arrived yet.
	Pending(n int)
}

// Config configures a Client.
type Config struct {
	// Address of the server: grpc://host:port, grpcs://…, ws://… or wss://….
	Address string
	// Tokens stores the agent's token. The client reads it for every connection, so that it notices a replaced token.
	Tokens Tokens
	// CAFile contains the PEM certificates of the authorities that may sign the server's certificate; "" means those of
	// the system.
	CAFile string
	// Proxy chooses the HTTP proxy of a request, as http.ProxyFromEnvironment does; nil means none.
	Proxy func(*http.Request) (*url.URL, error)
	// Hello returns the first message of a connection. The client adds the hashes and the clock.
	Hello func(ctx context.Context) wire.Hello
	// Capabilities returns the capabilities of the cluster as they are known now, and does not block; nil means that they
	// do not change. Call CapabilitiesChanged when they do.
	Capabilities func() fleet.Capabilities
	// Standby connects a follower: the server knows the replica and sends it nothing. Refused is not called then.
	Standby bool
	// Welcomed is called for each connection that the server accepts, with the agent's identity and configuration. It
	// returns the engine to deliver desired states to, and the targets that a new engine found in the cluster. It returns
	// the same engine for as long as the agent stays the same. The caller of New owns the engine: the client neither
	// starts nor stops it. ctx ends with the connection. For a follower Welcomed may be nil, and its results are ignored.
	Welcomed func(ctx context.Context, w wire.Welcome) (Engine, []engine.Held, error)
	// Refused is called when the server has refused every token of the agent. The next call of Welcomed ends that state.
	// Refused may be nil.
	Refused func()
	// Disconnected is called after each failed attempt to connect and each lost connection, before the next attempt. It
	// may call Resume. Disconnected may be nil.
	Disconnected func(ctx context.Context)
	// Tunnels serves connections from the server; nil means that the agent offers none.
	Tunnels *Tunnels
	// Unpack unpacks a bundle; nil means manifest.Unpack.
	Unpack func(digest string, zstd []byte) (*manifest.Set, error)
	Log    *slog.Logger
	// Metrics may be shared by several clients.
	Metrics *Metrics
}

// Client keeps an agent connected to its server. It implements engine.Reporter.
type Client struct {
	cfg    Config
	addr   address
	log    *slog.Logger
	tokens tokenSource

	statuses            statuses
	events              events
	wake                wait.Signal // signals that the writer has something to send
	capabilitiesChanged atomic.Bool // since they were last sent
	engineLists

	reports sync.RWMutex  // locked for writing while agent changes, which drops the reports of the previous one
	agent   fleet.AgentID // that the server has named; "" before it has

	welcomeTimeout time.Duration
	unpacking      sync.Mutex // one bundle at a time: unpacking needs a multiple of its size

	mu               sync.Mutex
	engine           Engine
	targets          targets
	partial          map[string][]byte // incomplete downloads of bundles, by digest
	snapshotComplete bool              // the server has sent everything that differed at the last Welcome
	pending          int               // last value passed to Engine.Pending; -1 before the first
	readiness        readiness
}

// engineLists are the newest lists of an engine with Argo CD; nil before the first.
type engineLists struct {
	applications atomic.Pointer[fleet.ForeignApplications]
	checks       atomic.Pointer[[]fleet.EnvironmentCheck]
}

// readiness is whether a client is connected, and why not.
type readiness struct {
	connected bool
	refusals  int      // consecutive refusals of tokens
	problem   *Problem // newest; nil while connected
}

// New checks cfg and returns a client. It does no I/O.
func New(cfg Config) (*Client, error) {
	addr, err := parseAddress(cfg.Address)
	if err != nil {
		return nil, err
	}
	if cfg.Tokens == nil || cfg.Hello == nil || cfg.Welcomed == nil && !cfg.Standby || cfg.Log == nil || cfg.Metrics == nil {
		return nil, errors.New("a link needs Tokens, Hello, Welcomed, Log and Metrics")
	}
	if cfg.Unpack == nil {
		cfg.Unpack = func(digest string, zstd []byte) (*manifest.Set, error) {
			return manifest.Unpack(digest, zstd, wire.MaxBundleContent)
		}
	}
	return &Client{
		cfg: cfg, addr: addr, log: cfg.Log.With(obs.KeyComponent, "link", obs.KeyAddress, addr.String()),
		tokens: tokenSource{stored: cfg.Tokens}, statuses: newStatuses(), wake: wait.NewSignal(),
		targets: newTargets(), partial: map[string][]byte{}, pending: -1, welcomeTimeout: defaultWelcomeTimeout,
	}, nil
}

// CapabilitiesChanged tells the client that Config.Capabilities may return a new value. It does not block.
func (c *Client) CapabilitiesChanged() {
	c.capabilitiesChanged.Store(true)
	c.wake.Set()
}

// Ready returns nil while the client is connected and the server has accepted the agent. Otherwise it returns the newest
// problem.
func (c *Client) Ready(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.readiness.connected:
		return nil
	case c.readiness.problem != nil:
		return c.readiness.problem
	default:
		return errors.New("not connected to the server yet")
	}
}

// Run keeps the agent connected until ctx ends. It returns nil then.
func (c *Client) Run(ctx context.Context) error {
	var backoff backoff
	timer := time.AfterFunc(deferredTimeout, c.deliverDeferred)
	defer timer.Stop()
	for ctx.Err() == nil {
		started := time.Now()
		err := c.connect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		delay := c.delay(ctx, &backoff, err, time.Since(started))
		c.cfg.Metrics.waited.Add(delay.Seconds())
		c.disconnected(err, delay)
		if c.cfg.Disconnected != nil {
			c.cfg.Disconnected(ctx)
		}
		c.deliverDeferred()
		wait.For(ctx, delay)
	}
	return nil
}

// delay returns how long to wait after a connection, or an attempt to connect, ended with err. There is no delay when the
// server refused a token that another replica has replaced in the meantime.
func (c *Client) delay(ctx context.Context, b *backoff, err error, lasted time.Duration) time.Duration {
	if status.Code(err) == codes.Unauthenticated && c.tokens.replaced(ctx) {
		b.attempts.Reset()
		return 0
	}
	return b.after(err, lasted)
}

// refusedAfter is the number of consecutive refusals after which the agent counts as refused. A single refusal may be due
// to a rotation that was undone, and the client tries another token then.
const refusedAfter = 2

// disconnected records and logs why there is no connection.
func (c *Client) disconnected(err error, delay time.Duration) {
	var bye *goodbye
	if errors.As(err, &bye) {
		c.log.Info("the connection was closed, reconnecting", obs.KeyReason, bye.reason, "in", readable(delay))
		return
	}
	problem := classify(err, c.cfg, c.addr)
	c.mu.Lock()
	c.readiness.problem = problem
	if status.Code(err) == codes.Unauthenticated {
		c.readiness.refusals++
	}
	refused := c.readiness.refusals == refusedAfter
	c.mu.Unlock()
	if refused && c.cfg.Refused != nil && !c.cfg.Standby {
		c.cfg.Refused()
	}
	c.cfg.Metrics.problems.WithLabelValues(string(problem.Kind)).Inc()
	c.log.Warn("no connection to the server", "kind", string(problem.Kind), obs.Err(problem), "retryIn", readable(delay))
}

func (c *Client) setConnected(connected bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if connected == c.readiness.connected {
		return
	}
	c.readiness.connected = connected
	if connected {
		c.readiness.problem, c.readiness.refusals = nil, 0
		c.cfg.Metrics.connected.Inc()
	} else {
		c.cfg.Metrics.connected.Dec()
	}
}

// setAgentLocked sets the agent that the client connects. It drops everything that belongs to another agent.
func (c *Client) setAgentLocked(id fleet.AgentID) {
	c.reports.Lock()
	defer c.reports.Unlock()
	if c.agent == id {
		return
	}
	if c.agent != "" {
		c.engine, c.pending, c.targets = nil, -1, newTargets()
		clear(c.partial)
		c.statuses.reset()
		c.events.reset()
	}
	c.agent = id
}

// setEngine asks for the engine of the agent. It reports whether a new engine found targets in the cluster, which Hello
// did not list.
func (c *Client) setEngine(ctx context.Context, w wire.Welcome) (recovered bool, err error) {
	e, found, err := c.cfg.Welcomed(ctx, w)
	if err != nil {
		return false, &engineError{fmt.Errorf("starting the engine: %w", err)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e == c.engine {
		return false, nil
	}
	c.engine = e
	c.pending, c.targets = -1, newTargets()
	for _, h := range found {
		c.targets.recovered(h)
	}
	return len(found) > 0, nil
}

// states returns the state of every target and the hash over them. They are not known before there is an engine.
func (c *Client) states() (states []wire.TargetState, hash []byte, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.targets.states(), c.targets.hash(), c.engine != nil
}

// readable formats a duration for the log.
func readable(d time.Duration) string { return d.Truncate(time.Millisecond).String() }
