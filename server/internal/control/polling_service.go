package control

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// pollingConfig configures a poller. Zero fields take their defaults.
type pollingConfig struct {
	// Lease is for how long an agent that polls counts as present after its last poll; default 90 s.
	Lease time.Duration
	// Now is the clock; default time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// pollingDeps are what polling works with. All are needed.
type pollingDeps struct {
	store   store.Store
	feed    pollingFeed
	planner pollingPlanner
	control pollingControl
}

// pollingFeed is the change feed of the store.
type pollingFeed interface {
	FollowAll(ctx context.Context, fn func([]store.Change)) error
}

// pollingPlanner knows whether the agent of a target is ahead of the server, or may be.
type pollingPlanner interface{ Ahead(t fleet.Target) bool }

// pollingControl are the use-cases that polling needs.
type pollingControl interface {
	// AgentTargets returns the targets of an agent, of every tenant.
	AgentTargets(ctx context.Context, tx store.Tx, agent fleet.Agent) ([]rollout.AgentTarget, error)
	// AgentPolls records that an agent polls this server.
	AgentPolls(ctx context.Context, c fleet.Connection) error
	// AgentDisconnected records that an agent polls no longer.
	AgentDisconnected(ctx context.Context, c fleet.Connection, lastSeen time.Time) error
}

// poller serves the agents that poll. It is safe for concurrent use.
type poller struct {
	cfg     pollingConfig
	store   store.Store
	feed    pollingFeed
	planner pollingPlanner
	control pollingControl
	bells   bells
	pollers pollers
}

// newPoller makes a poller; it does no I/O.
func newPoller(cfg pollingConfig, deps pollingDeps) *poller {
	cfg.Lease = cmp.Or(cfg.Lease, defaultPollLease)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &poller{cfg: cfg, store: deps.store, feed: deps.feed, planner: deps.planner, control: deps.control}
}

// doubtAll has the presence of every agent that polls written again at its next poll: changes may have been missed.
func (s *poller) doubtAll() { s.pollers.doubt(nil) }

// lease is for how long an agent that polls counts as present after its last poll.
func (s *poller) lease() time.Duration { return s.cfg.Lease }
