package link

import (
	"errors"
	"math/rand/v2"
	"time"
)

const (
	backoffStart = 250 * time.Millisecond
	backoffCap   = 30 * time.Second
	// A connection that lived this long was a good one: what follows is a new trouble.
	settled = 5 * time.Second
	// lostStep is where the backoff starts after a good connection broke off: within a second, so
	// that a fleet whose server died does not come back in one moment.
	lostStep = 2
)

// backoff is exponential with full jitter: every delay is anything between nothing and a window
// that doubles. Full jitter spreads a fleet best.
type backoff struct{ step int }

// after returns how long to wait after a connection (or an attempt at one) ended with err.
func (b *backoff) after(err error, lived time.Duration) time.Duration {
	var bye *goodbye
	if errors.As(err, &bye) {
		b.step = 0
		return jitter(min(bye.within, backoffCap))
	}
	if lived >= settled && !errors.As(err, new(*dialError)) && !errors.As(err, new(*unwelcome)) {
		b.step = lostStep
	}
	window := backoffCap
	if b.step < 7 { // 250 ms << 7 is beyond the cap
		window = min(window, backoffStart<<b.step)
		b.step++
	}
	return jitter(window)
}

func jitter(window time.Duration) time.Duration {
	if window <= 0 {
		return 0
	}
	return rand.N(window)
}
