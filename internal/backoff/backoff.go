// Package backoff computes how long to wait before a retry: exponentially longer up to a limit, with jitter so that
// callers that failed together do not retry together.
//
// It must not wait: a caller that retries has a context, and often an event that ends the wait early.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Backoff is a range of delays. Both fields must be positive. It holds no state, so it is safe for concurrent use.
type Backoff struct {
	// Min is the longest delay after the first failure.
	Min time.Duration
	// Max is the longest delay after any failure.
	Max time.Duration
}

// Delay returns a random delay between half of and the whole of Min<<attempt, where attempt counts from 0, limited
// to Max.
func (b Backoff) Delay(attempt int) time.Duration {
	longest := b.Min
	for ; attempt > 0 && longest < b.Max; attempt-- {
		longest *= 2
	}
	longest = min(longest, b.Max)
	return longest - rand.N(longest/2+1)
}
