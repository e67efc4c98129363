package restapi

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/server/internal/auth"
)

// guards end the streams of callers that lose their permission: a revoked token, an ended session, a removed
// role. They query the database instead of following the changes, so they also work on a replica that gets
// changes late. They query once for all streams of a token.
type guards struct {
	every    time.Duration
	identify func(ctx context.Context, token string) (auth.Principal, error)

	mu     sync.Mutex
	tokens map[string]*guarded
}

// guarded has the open streams of one token.
type guarded struct {
	streams map[*guardedStream]struct{}
	stop    context.CancelFunc
}

type guardedStream struct {
	was auth.Principal
	end func()
}

func newGuards(every time.Duration, identify func(ctx context.Context, token string) (auth.Principal, error)) *guards {
	return &guards{every: every, identify: identify, tokens: map[string]*guarded{}}
}

// watch calls end, once or several times, when a token is no longer valid or loses a permission. Call leave
// when the stream ends.
func (g *guards) watch(token string, was auth.Principal, end func()) (leave func()) {
	s := &guardedStream{was: was, end: end}
	g.mu.Lock()
	defer g.mu.Unlock()
	of := g.tokens[token]
	if of == nil {
		ctx, stop := context.WithCancel(context.Background())
		of = &guarded{streams: map[*guardedStream]struct{}{}, stop: stop}
		g.tokens[token] = of
		go g.run(ctx, token, of)
	}
	of.streams[s] = struct{}{}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if delete(of.streams, s); len(of.streams) == 0 && g.tokens[token] == of {
			delete(g.tokens, token)
			of.stop()
		}
	}
}

// run checks repeatedly until ctx ends.
func (g *guards) run(ctx context.Context, token string, of *guarded) {
	ticker := time.NewTicker(g.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		is, err := g.identify(ctx, token)
		for _, s := range g.open(of) {
			if errors.Is(err, auth.ErrUnauthenticated) || err == nil && !sameRights(is, s.was) {
				s.end()
			}
		}
	}
}

func (g *guards) open(of *guarded) []*guardedStream {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*guardedStream, 0, len(of.streams))
	for s := range of.streams {
		out = append(out, s)
	}
	return out
}

func sameRights(a, b auth.Principal) bool {
	return a.FleetAdmin == b.FleetAdmin && maps.Equal(a.Roles, b.Roles) && a.Subject == b.Subject && slices.Equal(a.Groups, b.Groups)
}
