package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
)

// disconnects records the end of sessions and retries until it succeeds. Otherwise a lost agent would be shown as
// connected after a failed write (invariant 8).
type disconnects struct {
	write func(ctx context.Context, c fleet.Connection, lastSeen time.Time) error
	log   *slog.Logger
	wake  wait.Signal

	mu    sync.Mutex
	queue []disconnect
}

type disconnect struct {
	connection fleet.Connection
	lastSeen   time.Time
}

func newDisconnects(write func(context.Context, fleet.Connection, time.Time) error, log *slog.Logger) *disconnects {
	return &disconnects{write: write, log: log, wake: wait.NewSignal()}
}

func (c *disconnects) add(connection fleet.Connection, lastSeen time.Time) {
	c.mu.Lock()
	c.queue = append(c.queue, disconnect{connection, lastSeen})
	c.mu.Unlock()
	c.wake.Set()
}

// run writes records until ctx ends.
func (c *disconnects) run(ctx context.Context) error {
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
				c.log.Warn("recording the end of a session failed, retrying", obs.Err(err))
				wait.For(ctx, retryDelay(attempt))
				attempt++
			}
		}
	}
}

// flush writes all queued records. It stops at the first failure.
func (c *disconnects) flush(ctx context.Context) error {
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
			c.queue = append(c.queue, next) // at the end: a record that cannot be written must not delay the others
			c.mu.Unlock()
			return fmt.Errorf("recording the end of session %s: %w", next.connection.SessionID, err)
		}
	}
}
