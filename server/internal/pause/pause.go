// Package pause waits for a time that a context can cut short.
//
// It must not decide how long to wait: callers that retry choose their own backoff. It holds no state, so it
// is safe for concurrent use.
package pause

import (
	"context"
	"time"
)

// For waits for d. It reports false when ctx ended before d had passed.
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
