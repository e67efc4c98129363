package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wake"
	"github.com/kedge-dev/kedge/server/internal/pause"
)

// closings records the end of sessions, and goes on trying: a lost agent that reads as connected
// because a write failed once would be a lie (invariant 8).
type closings struct {
	write func(ctx context.Context, c fleet.Connection, lastSeen time.Time) error
	log   *slog.Logger
	wake  wake.Signal

	mu    sync.Mutex
	queue []closing
}

type closing struct {
	connection fleet.Connection
	lastSeen   time.Time
}

func newClosings(write func(context.Context, fleet.Connection, time.Time) error, log *slog.Logger) *closings {
	return &closings{write: write, log: log, wake: wake.New()}
}

func (c *closings) add(connection fleet.Connection, lastSeen time.Time) {
	c.mu.Lock()
	c.queue = append(c.queue, closing{connection, lastSeen})
	c.mu.Unlock()
	c.wake.Set()
}

// run writes until ctx ends.
func (c *closings) run(ctx context.Context) error {
	for attempt := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		}
		for ctx.Err() == nil {
			err := c.flush(ctx)
			if err == nil {
				attempt = 0
				break
			}
			if ctx.Err() == nil {
				c.log.Warn("recording that an agent is gone, trying again", obs.Err(err))
				pause.For(ctx, retryBackoff.Delay(attempt))
				attempt++
			}
		}
	}
}

// flush writes everything that is waiting, or stops at the first failure.
func (c *closings) flush(ctx context.Context) error {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.queue = nil
			c.mu.Unlock()
			return nil
		}
		next := c.queue[0]
		c.queue = c.queue[1:]
		c.mu.Unlock()
		if err := c.write(ctx, next.connection, next.lastSeen); err != nil {
			c.mu.Lock()
			c.queue = append(c.queue, next) // at the end: one that cannot be written must not hold up the others
			c.mu.Unlock()
			return fmt.Errorf("recording the end of session %s: %w", next.connection.SessionID, err)
		}
	}
}
