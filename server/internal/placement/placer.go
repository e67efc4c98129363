package placement

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Config configures a placer. Zero fields have defaults.
type Config struct {
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Placer assigns deployments to agents. It is safe for concurrent use.
type Placer struct {
	cfg     Config
	planner *rollout.Planner
}

// New returns a placer with the planner that decides the desired states.
func New(cfg Config, planner *rollout.Planner) *Placer {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Placer{cfg: cfg, planner: planner}
}

// tell appends an event with the current time.
func (p *Placer) tell(ctx context.Context, tx store.Tx, e fleet.Event) error {
	e.At = p.cfg.Now()
	return tx.Events().Append(ctx, e)
}
