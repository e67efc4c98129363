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

// Engine is what a client needs of an engine. Its methods return at once.
type Engine interface {
	Set(d engine.Desired)
	// Pending says that n targets, or the rest of the snapshot, are still on their way: an object
	// that one target gave up may be among those of another, so prunes wait. 0 lets them go on.
	Pending(n int)
}

// Config configures a Client.
type Config struct {
	// Address of the server: grpc://host:port, grpcs://…, ws://… or wss://….
	Address string
	// Tokens keeps the agent's token. It is read anew for every connection, so that a token that was
	// replaced there is picked up.
	Tokens Tokens
	// CAFile holds the PEM certificates that the server's may be signed by; "" means the system's.
	CAFile string
	// Proxy chooses the HTTP proxy of a request, as http.ProxyFromEnvironment does; nil means none.
	Proxy func(*http.Request) (*url.URL, error)
	// Hello introduces this replica, anew for every connection; hashes and clock are filled in.
	Hello func(ctx context.Context) wire.Hello
	// Capabilities returns at once what is known of what the cluster offers, which is what Hello says of it or
	// something newer; nil means that it does not change. CapabilitiesChanged has it called.
	Capabilities func() fleet.Capabilities
	// Standby connects a follower: the server knows the replica and sends it nothing. Refused is not called then.
	Standby bool
	// Welcomed is called for each connection that the server accepts, with the agent's identity and configuration. It
	// returns the engine to deliver desired states to, and the targets that a new engine found in the cluster. It returns
	// the same engine for as long as the agent stays the same. The caller of New owns the engine: the client neither
	// starts nor stops it. ctx ends with the connection. For a follower Welcomed may be nil, and its results are ignored.
	Welcomed func(ctx context.Context, w wire.Welcome) (Engine, []engine.Held, error)
	// Refused is called when the server has refused every token of the agent, until the next Welcomed; nil means that
	// nothing is called.
	Refused func()
	// Disconnected is called after each failed attempt to connect and each lost connection, before the next attempt; nil
	// means that nothing is called. It may call Resume.
	Disconnected func(ctx context.Context)
	// Unpack opens a bundle; nil means manifest.Unpack.
	Unpack func(digest string, zstd []byte) (*manifest.Set, error)
	Log    *slog.Logger
	// Metrics may be shared by several clients.
	Metrics *Metrics
}

// Client keeps an agent connected. It implements engine.Reporter.
type Client struct {
	cfg  Config
	addr address
	log  *slog.Logger

	statuses statuses
	events   events
	wake     chan struct{} // the writer has something to send
	offering atomic.Bool   // what the cluster offers may have changed since the server was told

	reports sync.RWMutex  // locked for writing while agent changes, which drops the reports of the previous one
	agent   fleet.AgentID // that the server has named; "" before it has

	patience  time.Duration // how long a server may take for its Welcome
	unpacking sync.Mutex    // one bundle at a time: opening one takes a multiple of its size
	wallet    wallet

	mu        sync.Mutex
	engine    Engine
	targets   targets
	partial   map[string][]byte // bundles that were fetched in part, by digest
	complete  bool              // the server has sent all that differed at the last Welcome
	pending   int               // that the engine was told; -1 when it was told nothing
	connected bool
	refusals  int // of tokens, since the last Welcome
	problem   *Problem
}

// New checks cfg and makes a client. It does no I/O.
func New(cfg Config) (*Client, error) {
	addr, err := parseAddress(cfg.Address)
	if err != nil {
		return nil, err
	}
	if cfg.Tokens == nil || cfg.Hello == nil || cfg.Welcomed == nil && !cfg.Standby || cfg.Log == nil || cfg.Metrics == nil {
		return nil, errors.New("a link needs tokens, an introduction, an engine, a logger and metrics")
	}
	if cfg.Unpack == nil {
		cfg.Unpack = func(digest string, zstd []byte) (*manifest.Set, error) {
			return manifest.Unpack(digest, zstd, wire.MaxBundleContent)
		}
	}
	return &Client{
		cfg: cfg, addr: addr, log: cfg.Log.With(obs.KeyComponent, "link", obs.KeyAddress, addr.String()),
		statuses: newStatuses(), wake: make(chan struct{}, 1), wallet: wallet{kept: cfg.Tokens},
		targets: newTargets(), partial: map[string][]byte{}, pending: -1, patience: welcomeTimeout,
	}, nil
}

// CapabilitiesChanged says that Config.Capabilities may return something else than before. It does not block.
func (c *Client) CapabilitiesChanged() {
	c.offering.Store(true)
	wait.Signal(c.wake)
}

// Ready returns nil while the client is connected and welcomed, and otherwise the newest problem.
func (c *Client) Ready(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.connected:
		return nil
	case c.problem != nil:
		return c.problem
	default:
		return errors.New("not connected to the server yet")
	}
}

// Run keeps the agent connected until ctx ends, and returns nil then.
func (c *Client) Run(ctx context.Context) error {
	var backoff backoff
	late := time.AfterFunc(laterAfter, c.serveLater)
	defer late.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		err := c.connect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		delay := c.delay(ctx, &backoff, err, time.Since(began))
		c.cfg.Metrics.waited.Add(delay.Seconds())
		c.lost(err, delay)
		if c.cfg.Disconnected != nil {
			c.cfg.Disconnected(ctx)
		}
		c.serveLater()
		wait.For(ctx, delay)
	}
	return nil
}

// delay is how long to wait after a connection, or an attempt at one, ended with err. A token that was replaced while
// its predecessor was in use is not waited with: the replicas of an agent share it, and one of them was first.
func (c *Client) delay(ctx context.Context, b *backoff, err error, lived time.Duration) time.Duration {
	if status.Code(err) == codes.Unauthenticated && c.wallet.replaced(ctx) {
		b.attempts.Reset()
		return 0
	}
	return b.after(err, lived)
}

// refusedAfter is how many refusals in a row count: one is what a rotation that was undone looks like,
// and then another token is tried.
const refusedAfter = 2

// lost records and tells why there is no connection now.
func (c *Client) lost(err error, delay time.Duration) {
	var bye *goodbye
	if errors.As(err, &bye) {
		c.log.Info("the connection was ended in good order, coming back", obs.KeyReason, bye.reason, "in", readable(delay))
		return
	}
	problem := classify(err, c.cfg, c.addr)
	c.mu.Lock()
	c.problem = problem
	if status.Code(err) == codes.Unauthenticated {
		c.refusals++
	}
	refused := c.refusals == refusedAfter
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
	if connected == c.connected {
		return
	}
	c.connected = connected
	if connected {
		c.problem, c.refusals = nil, 0
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
func (c *Client) states() (states []wire.Held, hash []byte, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.targets.states(), c.targets.hash(), c.engine != nil
}

// readable is a duration for a log line: JSON would have nanoseconds.
func readable(d time.Duration) string { return d.Truncate(time.Millisecond).String() }
