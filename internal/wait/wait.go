// Package wait has what a loop needs between two attempts: an exponential backoff, a pause that ends with a context, and
// a signal that wakes the loop.
//
// It starts no goroutine and knows nothing of what is retried: callers choose the delays.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff counts failed attempts and returns delays that grow exponentially. The zero value is ready to use.
type Backoff struct{ attempts int }

// Next counts an attempt and returns the delay after it: first, doubled with each further attempt, at most limit.
func (b *Backoff) Next(first, limit time.Duration) time.Duration {
	delay := limit
	if n := b.attempts; first <= limit>>n { // or else the shift may overflow
		delay = first << n
	}
	b.attempts++
	return delay
}

// Skip counts attempts that were not made, so that Next returns at least the delay after n attempts.
func (b *Backoff) Skip(n int) { b.attempts = max(b.attempts, n) }

// Attempts returns how many attempts were counted since the last Reset.
func (b *Backoff) Attempts() int { return b.attempts }

// Reset starts again with the first delay.
func (b *Backoff) Reset() { b.attempts = 0 }

// Jitter shortens d at random by up to fraction of it, so that clients which failed together do not retry together.
// With fraction 1 the result is anything between 0 and d.
func Jitter(d time.Duration, fraction float64) time.Duration {
	window := time.Duration(float64(d) * fraction)
	if window <= 0 {
		return d
	}
	return d - rand.N(window+1)
}

// For waits for d. It reports false when ctx ended first.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Signal sends to ch without blocking. The capacity of ch is 1, so that several signals before the next receive count as
// one.
func Signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
