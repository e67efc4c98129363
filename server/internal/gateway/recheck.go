package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
)

const (
	// concurrentRechecks limits the concurrent checks. They do not share slots with the lookups of new streams.
	concurrentRechecks = 4
	// recheckSlots spreads the periodic checks over the interval.
	recheckSlots = 60
)

// rechecks checks whether the tokens of open sessions and tunnels are still valid. Sessions do not do that
// themselves: a session is blocked while its agent receives nothing.
type rechecks struct {
	gateway *Gateway
	wake    wait.Signal

	mu      sync.Mutex
	pending map[rechecked]struct{}
}

// rechecked is a session or a tunnel.
type rechecked interface {
	// recheck ends it if its token is not valid any more. It fails if it cannot check that now.
	recheck(ctx context.Context) error
	log() *slog.Logger
}

func newRechecks(g *Gateway) *rechecks {
	return &rechecks{gateway: g, wake: wait.NewSignal(), pending: map[rechecked]struct{}{}}
}

func (r *rechecks) add(s rechecked) {
	r.mu.Lock()
	r.pending[s] = struct{}{}
	r.mu.Unlock()
	r.wake.Set()
}

func (r *rechecks) next() rechecked {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.pending {
		delete(r.pending, s)
		return s
	}
	return nil
}

// run checks the sessions that are added, and all sessions once per interval as a backstop, until ctx ends.
func (r *rechecks) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for range concurrentRechecks {
		all.Go(func() { r.work(ctx) })
	}
	tick := time.NewTicker(max(r.gateway.cfg.RecheckEvery/recheckSlots, time.Millisecond))
	defer tick.Stop()
	for slot := 0; ; slot = (slot + 1) % recheckSlots {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.gateway.sessions.forEach(func(s *session) {
			if int(s.recheckSlot) == slot {
				r.add(s)
			}
		})
	}
}

func (r *rechecks) work(ctx context.Context) {
	for attempt := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		for s := r.next(); s != nil && ctx.Err() == nil; s = r.next() {
			r.wake.Set() // another worker may take the next one
			if err := s.recheck(ctx); err != nil {
				if ctx.Err() == nil {
					s.log().Warn("checking a token failed, retrying", obs.Err(err))
				}
				r.add(s)
				wait.For(ctx, retryDelay(attempt))
				attempt++
				continue
			}
			attempt = 0
		}
	}
}

// recheck also ends a session whose configuration has changed.
func (s *session) recheck(ctx context.Context) error {
	if s.ended() != nil {
		return nil
	}
	now, err := s.gateway.lookup(ctx, s.token)
	switch {
	case status.Code(err) == codes.Unauthenticated:
		s.end(errRevoked)
		s.remove()
	case err != nil:
		return err
	case !now.agent.SameToAgent(s.agent):
		s.scheduleGoodbye(configurationChanged, 0)
	}
	return nil
}
