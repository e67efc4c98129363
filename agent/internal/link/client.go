package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
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
	// Attach makes the engine of the agent that the server says this is, and what that engine
	// finds in the cluster. It is called after the first Welcome, and again when the server says
	// something else than before; it may return the same engine then. ctx ends with the
	// connection, the engine must not.
	Attach func(ctx context.Context, w wire.Welcome) (Engine, []engine.Held, error)
	// Standby makes this the connection of a replica that another one leads: it is known to the server
	// and told nothing. Attach and Refused are not called then.
	Standby bool
	// Welcomed is told what the server says of the agent, for every connection; nil means nobody is.
	Welcomed func(w wire.Welcome)
	// Refused is told when the server has refused whatever token there is; nil means nobody is. Welcomed
	// takes it back.
	Refused func()
	// Away is called after each time that no connection could be made or one was lost, before the next try;
	// nil means that nobody is. It may call Resume.
	Away func(ctx context.Context)
	// Detach ends the engine that Attach made, before another agent's is made; nil means that there
	// is nothing to end.
	Detach func()
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

	patience  time.Duration // how long a server may take for its Welcome
	unpacking sync.Mutex    // one bundle at a time: opening one takes a multiple of its size
	wallet    wallet

	mu        sync.Mutex
	engine    Engine
	welcome   wire.Welcome // that engine was made for
	targets   targets
	partial   map[string][]byte // bundles that were fetched in part, by digest
	complete  bool              // the server has sent all that differed at the last Welcome
	pending   int               // that the engine was told; -1 when it was told nothing
	connected bool
	refusals  int // of tokens, since the last Welcome
	problem   *Problem
}

var _ engine.Reporter = (*Client)(nil)

// New checks cfg and makes a client. It does no I/O.
func New(cfg Config) (*Client, error) {
	addr, err := parseAddress(cfg.Address)
	if err != nil {
		return nil, err
	}
	if cfg.Tokens == nil || cfg.Hello == nil || cfg.Attach == nil && !cfg.Standby || cfg.Log == nil || cfg.Metrics == nil {
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

// Status takes the newest state of a target. It does not block.
func (c *Client) Status(s engine.Status) {
	if err := wire.CheckTarget(s.Target); err != nil {
		c.log.Warn("a status that cannot be sent was dropped", obs.Err(err)) // no server can have made that target
		return
	}
	c.statuses.put(s)
	wait.Signal(c.wake)
}

// Event takes something that happened. It does not block; when too much is waiting, the oldest
// event is dropped and counted.
func (c *Client) Event(target fleet.TargetID, e fleet.Event) {
	if c.events.put(wire.Event{Target: target, Event: e}) {
		c.cfg.Metrics.eventsDropped.Inc()
	}
	wait.Signal(c.wake)
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
		if c.cfg.Away != nil {
			c.cfg.Away(ctx)
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

// detachOther drops everything of an agent that this one is not any more.
func (c *Client) detachOther(id fleet.AgentID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.engine == nil || c.welcome.AgentID == id {
		return
	}
	if c.cfg.Detach != nil {
		c.cfg.Detach() // before what it has told is dropped
	}
	c.engine, c.pending, c.targets = nil, -1, newTargets()
	clear(c.partial)
	c.statuses.reset()
	c.events.reset()
}

// attach makes the engine if there is none for that welcome. It reports whether the engine found
// anything that Hello could not tell of.
func (c *Client) attach(ctx context.Context, w wire.Welcome) (recovered bool, err error) {
	c.mu.Lock()
	same := c.engine != nil && c.welcome.AgentID == w.AgentID && c.welcome.Scope == w.Scope && slices.Equal(c.welcome.Namespaces, w.Namespaces)
	c.mu.Unlock()
	if same {
		return false, nil
	}
	made, found, err := c.cfg.Attach(ctx, w)
	if err != nil {
		return false, &engineError{fmt.Errorf("starting the engine: %w", err)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	same = made == c.engine
	c.engine, c.welcome = made, w
	if same { // it was told of its new configuration and goes on with what it has
		return false, nil
	}
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
