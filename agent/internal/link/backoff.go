package link

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/wait"
)

const (
	backoffFirst = 250 * time.Millisecond
	// backoffMax bounds the delay while the server is unavailable: a fleet whose server was killed has to be up to date
	// soon after the server is back.
	backoffMax = 10 * time.Second
	// refusedMax bounds the delay after the server has refused the agent, which more attempts do not change, and the time
	// in a Goodbye.
	refusedMax = 30 * time.Second
	// goodbyeMin is the smallest window for the attempts after the first one that follows a Goodbye.
	goodbyeMin = time.Second
	// goodbyeAttempts is how many attempts use the window of a Goodbye. A server that is unavailable for longer is not
	// restarting.
	goodbyeAttempts = 60
	// stableAfter is how long a connection has to last so that the backoff starts again.
	stableAfter = 5 * time.Second
	// throttledAttempts is where the backoff starts after the server has throttled the agent: with up to four seconds.
	throttledAttempts = 4
	// lostAttempts is where the backoff starts after a stable connection was lost: with up to a second, so that a fleet
	// whose server died does not reconnect in one moment.
	lostAttempts = 2
)

// backoff is exponential with full jitter: each delay is a random part of a window that doubles. Full jitter spreads a fleet
// best.
//
// A server that stops sends in its Goodbye the time within which its agents reconnect, which depends on their number. Until
// the next connection no window is larger than that.
type backoff struct {
	attempts wait.Backoff
	goodbye  time.Duration // window of the last Goodbye; 0 when there was none
}

// after returns how long to wait after a connection, or an attempt to connect, ended with err.
func (b *backoff) after(err error, lasted time.Duration) time.Duration {
	var bye *goodbye
	if errors.As(err, &bye) {
		b.attempts.Reset()
		b.goodbye = 0
		if bye.reconnectWithin > 0 {
			b.goodbye = max(bye.reconnectWithin, goodbyeMin)
		}
		return wait.Jitter(min(bye.reconnectWithin, refusedMax), 1)
	}
	if welcomed := !errors.As(err, new(*dialError)) && !errors.As(err, new(*beforeWelcomeError)); welcomed {
		b.goodbye = 0
		if lasted >= stableAfter {
			b.attempts.Reset()
			b.attempts.Skip(lostAttempts)
		}
	}
	if status.Code(err) == codes.ResourceExhausted {
		// No full jitter, which may mean no delay: the server has asked for fewer requests.
		b.attempts.Skip(throttledAttempts)
		return wait.Jitter(b.attempts.Next(backoffFirst, refusedMax), 0.5)
	}
	return wait.Jitter(b.attempts.Next(backoffFirst, b.limit(err)), 1)
}

// limit returns the largest window after err.
func (b *backoff) limit(err error) time.Duration {
	switch {
	case refusedByServer(err):
		return refusedMax
	case b.goodbye > 0 && b.attempts.Attempts() < goodbyeAttempts:
		return min(b.goodbye, refusedMax)
	default:
		return backoffMax
	}
}

// refusedByServer reports whether the server has refused this agent, or the agent's own configuration has to change first.
func refusedByServer(err error) bool {
	code := status.Code(err)
	return code == codes.Unauthenticated || code == codes.PermissionDenied || errors.As(err, new(*configError))
}
