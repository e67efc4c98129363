// Package backoff computes the delays between attempts and waits for them. It keeps no state but the number of attempts.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is an exponential delay. The zero value is ready. It is not safe for concurrent use.
type Backoff struct{ Tries int }

// Next returns the delay before the next attempt: first, doubled each time, at most limit. It subtracts up to a fifth at
// random, so that attempts that failed together are not repeated together.
func (b *Backoff) Next(first, limit time.Duration) time.Duration {
	delay := limit
	if b.Tries < 30 {
		delay = min(first<<b.Tries, limit)
	}
	b.Tries++
	return delay - time.Duration(rand.Int64N(int64(delay)/5+1))
}

// Wait waits for d, until ctx ends or until again is closed. A nil again is never closed.
func Wait(ctx context.Context, again <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-again:
	case <-timer.C:
	}
}
