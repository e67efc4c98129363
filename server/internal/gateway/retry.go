package gateway

import (
	"context"
	"math/rand/v2"
	"time"
)

// retryDelay is how long to wait before trying again what failed: up to 250 ms at first, doubling
// to 2 s, at random so that sessions do not retry in step. A database that restarts is away for seconds.
func retryDelay(attempt int) time.Duration {
	window := 2 * time.Second
	if attempt < 5 {
		window = min(window, 250*time.Millisecond<<attempt)
	}
	return window/2 + rand.N(window/2)
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// signal wakes whoever waits on ch, once, however often it is called.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
