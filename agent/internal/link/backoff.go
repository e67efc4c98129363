package link

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/wait"
)

const (
	backoffStart = 250 * time.Millisecond
	// backoffCap bounds the delay while the server cannot say when to come back: a fleet whose server was
	// killed has to be current again soon after it is back.
	backoffCap = 10 * time.Second
	// refusedCap bounds the delay after the server answered and refused, which more attempts do not change,
	// and what a Goodbye may ask for.
	refusedCap = 30 * time.Second
	// announcedMin and announcedTries bound what a Goodbye says about the attempts after the first: a server
	// with few agents asks for at least this window, and one that stays away longer than so many attempts
	// is not restarting.
	announcedMin   = time.Second
	announcedTries = 60
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
//
// A server that stops says within which time its agents may come back, which depends on how many they are.
// Until the next connection no window is wider than that.
type backoff struct {
	attempts  wait.Backoff
	announced time.Duration // window that the last Goodbye named; 0 when the server could not say
}

// after returns how long to wait after a connection (or an attempt at one) ended with err.
func (b *backoff) after(err error, lived time.Duration) time.Duration {
	var bye *goodbye
	if errors.As(err, &bye) {
		b.attempts.Reset()
		b.announced = 0
		if bye.within > 0 {
			b.announced = max(bye.within, announcedMin)
		}
		return wait.Jitter(min(bye.within, refusedCap), 1)
	}
	if welcomed := !errors.As(err, new(*dialError)) && !errors.As(err, new(*unwelcome)); welcomed {
		b.announced = 0
		if lived >= settled {
			b.attempts.Reset()
			b.attempts.Skip(lostStep)
		}
	}
	if status.Code(err) == codes.ResourceExhausted {
		// Full jitter may mean at once, which is not what was asked for.
		b.attempts.Skip(politeStep)
		return wait.Jitter(b.attempts.Next(backoffStart, refusedCap), 0.5)
	}
	return wait.Jitter(b.attempts.Next(backoffStart, b.limit(err)), 1)
}

// limit is the widest window after err.
func (b *backoff) limit(err error) time.Duration {
	switch {
	case refusedByServer(err):
		return refusedCap
	case b.announced > 0 && b.attempts.Attempts() < announcedTries:
		return min(b.announced, refusedCap)
	default:
		return backoffCap
	}
}

// refusedByServer reports whether the server answered and does not let this agent in, or the agent's own
// configuration has to change first.
func refusedByServer(err error) bool {
	code := status.Code(err)
	return code == codes.Unauthenticated || code == codes.PermissionDenied || errors.As(err, new(*configError))
}
