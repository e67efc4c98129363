package rollout

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Config configures a planner. Zero fields have defaults.
type Config struct {
	// KeepRevisions is the number of kept revisions of a deployment for rollbacks; default 10.
	KeepRevisions int
	// RunTimeout is when a sync run that is not done counts as failed; default 1 h.
	RunTimeout time.Duration
	// Now is the clock; default time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Planner decides the desired state of each target, and writes it in the transactions of its callers. It is
// safe for concurrent use.
type Planner struct {
	cfg          Config
	store        store.Store
	refusals     memo
	names        names
	aheadLimiter aheadLimiter
	epoch        int64 // of the database: restoring a backup raises it
}

// New returns a planner; it does no I/O.
func New(cfg Config, st store.Store) *Planner {
	cfg.KeepRevisions = cmp.Or(cfg.KeepRevisions, 10)
	cfg.RunTimeout = cmp.Or(cfg.RunTimeout, time.Hour)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Planner{cfg: cfg, store: st}
}

// SetEpoch sets the epoch of the database. Call it before anything else.
func (s *Planner) SetEpoch(epoch int64) { s.epoch = epoch }

// tell appends an event with the current time.
func (s *Planner) tell(ctx context.Context, tx store.Tx, e fleet.Event) error {
	e.At = s.cfg.Now()
	return tx.Events().Append(ctx, e)
}

// Next returns the version after v, in the epoch of this database.
func (s *Planner) Next(v fleet.Version) fleet.Version {
	return fleet.Version{Epoch: max(v.Epoch, s.epoch), Generation: v.Generation + 1}
}
