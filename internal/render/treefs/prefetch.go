package treefs

import "context"

// Questions are paths that a renderer will access.
type Questions struct {
	Stat, Read, List []string
}

// Prefetcher is implemented by Files that answer many questions together faster than one by one.
type Prefetcher interface {
	// Prefetch asks the questions. The next call with a path returns the prefetched result, which may be an
	// error.
	Prefetch(ctx context.Context, q Questions)
}

// Prefetch asks questions in advance if files supports it. They count as accesses: everything in q must be
// needed.
func Prefetch(ctx context.Context, files Files, q Questions) {
	if p, ok := files.(Prefetcher); ok {
		p.Prefetch(ctx, q)
	}
}
