package placement

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Config configures a placer. Zero fields take their defaults.
type Config struct {
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Placer makes the targets of deployments those of the agents that their environments select. It is safe for
// concurrent use.
type Placer struct {
	cfg     Config
	planner *rollout.Planner
}

// New makes a placer over the planner that decides what its targets shall have.
func New(cfg Config, planner *rollout.Planner) *Placer {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Placer{cfg: cfg, planner: planner}
}

// tell appends an event, now.
func (p *Placer) tell(ctx context.Context, tx store.Tx, e fleet.Event) error {
	e.At = p.cfg.Now()
	return tx.Events().Append(ctx, e)
}
