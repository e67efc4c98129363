package polling

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Config configures a poller. Zero fields have defaults.
type Config struct {
	// Lease is how long a polling agent counts as present after its last poll; default 90 s.
	Lease time.Duration
	// Now is the clock; default time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Deps are the dependencies. All are required.
type Deps struct {
	Store   store.Store
	Feed    Feed
	Planner Planner
	Control Control
}

// Feed is the change feed of the store.
type Feed interface {
	FollowAll(ctx context.Context, fn func([]store.Change)) error
}

// Planner knows whether the agent of a target is ahead of the server, or may be.
type Planner interface{ Ahead(t fleet.Target) bool }

// Control has the use cases that polling needs.
type Control interface {
	// AgentTargets returns the targets of an agent, of every tenant.
	AgentTargets(ctx context.Context, tx store.Tx, agent fleet.Agent) ([]rollout.AgentTarget, error)
	// AgentPolls records that an agent polls this server.
	AgentPolls(ctx context.Context, c fleet.Connection) error
	// AgentDisconnected records that an agent polls no longer.
	AgentDisconnected(ctx context.Context, c fleet.Connection, lastSeen time.Time) error
}

// Poller serves the agents that poll. It is safe for concurrent use.
type Poller struct {
	cfg     Config
	store   store.Store
	feed    Feed
	planner Planner
	control Control
	waiters waiters
	leases  pollLeases
}

// New returns a poller; it does no I/O.
func New(cfg Config, deps Deps) *Poller {
	cfg.Lease = cmp.Or(cfg.Lease, defaultPollLease)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Poller{cfg: cfg, store: deps.Store, feed: deps.Feed, planner: deps.Planner, control: deps.Control}
}

// DoubtAll lets the presence of every polling agent be written again at its next poll: changes may have been
// missed.
func (s *Poller) DoubtAll() { s.leases.markDoubted(nil) }

// Lease returns how long a polling agent counts as present after its last poll.
func (s *Poller) Lease() time.Duration { return s.cfg.Lease }
