package plain

import (
	"context"
	"fmt"
	"time"
)

// stopwatch bounds the time of a render in this process. What is waited for does not count: a file that has
// to be fetched first may take longer, which is nobody's mistake.
type stopwatch struct {
	limit  time.Duration
	began  time.Time
	waited time.Duration
}

func startWatch(limits Limits) *stopwatch { return &stopwatch{limit: limits.Time, began: time.Now()} }

// waitFor does something that does not count.
func (s *stopwatch) waitFor(f func()) {
	began := time.Now()
	f()
	s.waited += time.Since(began)
}

// check says whether to go on with what is at path.
func (s *stopwatch) check(ctx context.Context, path string) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("rendering %q: %w", path, context.Cause(ctx))
	case time.Since(s.began)-s.waited > s.limit:
		return &Error{Path: path, Transient: true, Problem: fmt.Sprintf("rendering took longer than %v, the limit for one render, and was stopped here: "+
			"split it into several deployments, or raise the limit (--render-timeout)", s.limit)}
	}
	return nil
}
