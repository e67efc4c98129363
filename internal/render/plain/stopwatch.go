package plain

import (
	"context"
	"fmt"
	"time"
)

// stopwatch limits the time of a render in this process. The time to fetch files does not count, because it is
// not a user error.
type stopwatch struct {
	limit  time.Duration
	began  time.Time
	waited time.Duration
}

func startWatch(limits Limits) *stopwatch { return &stopwatch{limit: limits.Time, began: time.Now()} }

// waitFor calls f without counting its time.
func (s *stopwatch) waitFor(f func()) {
	began := time.Now()
	f()
	s.waited += time.Since(began)
}

// check returns an error if the time is over; path is the next file or folder.
func (s *stopwatch) check(ctx context.Context, path string) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("rendering %q: %w", path, context.Cause(ctx))
	case time.Since(s.began)-s.waited > s.limit:
		return &Error{Path: path, Transient: true, Problem: fmt.Sprintf("the render took longer than the limit of %v and was stopped here: "+
			"split it into several deployments, or raise the limit (--render-timeout)", s.limit)}
	}
	return nil
}
