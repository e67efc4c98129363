// Package wait provides tools for loops that retry: an exponential backoff, a pause that ends with a context,
// and a signal that wakes the loop.
//
// It starts no goroutine. Callers choose the delays.
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
	delay := Delay(first, limit, b.attempts)
	b.attempts++
	return delay
}

// NextJittered is Next, shortened at random by up to a fifth.
func (b *Backoff) NextJittered(first, limit time.Duration) time.Duration {
	return Jitter(b.Next(first, limit), 0.2)
}

// Skip counts attempts that were not made, so that Next returns at least the delay after n attempts.
func (b *Backoff) Skip(n int) { b.attempts = max(b.attempts, n) }

// Attempts returns how many attempts were counted since the last Reset.
func (b *Backoff) Attempts() int { return b.attempts }

// Reset starts again with the first delay.
func (b *Backoff) Reset() { b.attempts = 0 }

// Delay returns first, doubled attempt times, at most limit.
func Delay(first, limit time.Duration, attempt int) time.Duration {
	if first <= limit>>attempt { // or else the shift may overflow
		return first << attempt
	}
	return limit
}

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

// ForOr is For that also ends when again is closed or received from. A nil again never is.
func ForOr(ctx context.Context, again <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-again:
	case <-timer.C:
	}
}

// Signal wakes one goroutine that receives from it. It carries no data: the goroutine finds its work in a state that it
// shares with the sender. Make it with NewSignal.
type Signal chan struct{}

// NewSignal returns a signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set wakes the receiver now, or when it receives next. It never blocks. Several calls before the receiver receives count
// as one. Set is safe for concurrent use.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}
