package testkit

import (
	"context"
	"testing"
	"time"
)

// Eventually calls check until it returns nil, and fails the test with its last error after limit. Use it for
// effects that are only visible from outside, through a program or an API without a watch; inside a process,
// wait for a channel, a watch, or synctest.
func Eventually(tb testing.TB, limit time.Duration, check func(ctx context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		if last == nil || ctx.Err() == nil { // the error of a canceled check has no information
			last = err
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("condition not met after %v: %v", limit, last)
		case <-tick.C:
		}
	}
}
