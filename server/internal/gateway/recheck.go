package gateway

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wake"
	"github.com/kedge-dev/kedge/server/internal/pause"
)

// recheckers is how many tokens are looked at at once. They wait for nobody who is not let in yet.
const recheckers = 4

// rechecks looks whether the tokens of sessions are still good. It does not leave that to the sessions:
// one whose agent takes nothing is blocked, and would never look.
type rechecks struct {
	gateway *Gateway
	wake    wake.Signal

	mu      sync.Mutex
	pending map[*session]struct{}
}

func newRechecks(g *Gateway) *rechecks {
	return &rechecks{gateway: g, wake: wake.New(), pending: map[*session]struct{}{}}
}

func (r *rechecks) add(s *session) {
	r.mu.Lock()
	r.pending[s] = struct{}{}
	r.mu.Unlock()
	r.wake.Set()
}

func (r *rechecks) take() *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.pending {
		delete(r.pending, s)
		return s
	}
	return nil
}

// run looks at what is added, and as a backstop at all sessions again and again, until ctx ends.
func (r *rechecks) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for range recheckers {
		all.Go(func() { r.work(ctx) })
	}
	const parts = 60 // a few at a time
	tick := time.NewTicker(max(r.gateway.cfg.RecheckEvery/parts, time.Millisecond))
	defer tick.Stop()
	for turn := 0; ; turn = (turn + 1) % parts {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.gateway.each(func(s *session) {
			if int(s.part)%parts == turn {
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
		for s := r.take(); s != nil && ctx.Err() == nil; s = r.take() {
			r.wake.Set() // there may be more, for others
			if err := s.recheck(ctx); err != nil {
				if ctx.Err() == nil {
					s.log().Warn("looking at a token again, trying once more", obs.Err(err))
				}
				r.add(s)
				pause.For(ctx, retryBackoff.Delay(attempt))
				attempt++
				continue
			}
			attempt = 0
		}
	}
}

// recheck ends the session of an agent that is no longer let in, or that is no longer what it was
// welcomed as. It fails when that cannot be found out now.
func (s *session) recheck(ctx context.Context) error {
	if s.ended() != nil {
		return nil
	}
	now, err := s.gateway.lookUp(ctx, s.token)
	switch {
	case status.Code(err) == codes.Unauthenticated:
		s.end(errRevoked)
		s.gone()
	case err != nil:
		return err
	case now.agent.ID != s.agent.ID || now.agent.Scope != s.agent.Scope || !slices.Equal(now.agent.Namespaces, s.agent.Namespaces):
		s.sayGoodbye("the agent's configuration has changed", 0)
	}
	return nil
}
