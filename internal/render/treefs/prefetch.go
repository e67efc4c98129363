package treefs

import "context"

// Questions are paths that a renderer is about to ask for.
type Questions struct {
	Stat, Read, List []string
}

// Prefetcher is Files that answer many questions at once in less time than one by one.
type Prefetcher interface {
	// Prefetch asks them. What is answered, an error too, is what the next call with that path returns.
	Prefetch(ctx context.Context, q Questions)
}

// Prefetch asks questions ahead where that is of use. They count as asked: everything in q has to be needed.
func Prefetch(ctx context.Context, files Files, q Questions) {
	if p, ok := files.(Prefetcher); ok {
		p.Prefetch(ctx, q)
	}
}
