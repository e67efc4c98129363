package link

import (
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	backoffStart = 250 * time.Millisecond
	backoffCap   = 30 * time.Second
	// A connection that lived this long was a good one: what follows is a new trouble.
	settled = 5 * time.Second
	// politeStep is where the backoff starts after the server has asked for less: within four seconds.
	politeStep = 4
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
	if status.Code(err) == codes.ResourceExhausted {
		// Full jitter may mean at once, which is not what was asked for.
		b.step = max(b.step, politeStep)
		window := b.widen()
		return window/2 + jitter(window/2)
	}
	return jitter(b.widen())
}

// widen returns the window of this delay, and makes the next one twice as wide.
func (b *backoff) widen() time.Duration {
	if b.step >= 7 { // 250 ms << 7 is beyond the cap
		return backoffCap
	}
	b.step++
	return min(backoffCap, backoffStart<<(b.step-1))
}

func jitter(window time.Duration) time.Duration {
	if window <= 0 {
		return 0
	}
	return rand.N(window)
}
