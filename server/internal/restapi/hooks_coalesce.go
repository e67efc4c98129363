package restapi

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// pushTimeout limits the write that several webhooks may wait for.
const pushTimeout = 10 * time.Second

// pushes forwards webhooks and joins equal ones: while one is being written, all webhooks for the same refs
// share the next write. So repeated webhooks cost one write at a time, and none is lost, because that write
// starts after them. It is safe for concurrent use.
type pushes struct {
	mu      sync.Mutex
	running map[string]*pushCall
	waiting map[string]*pushCall
}

type pushCall struct {
	done chan struct{} // closed when err is set
	err  error
}

func newPushes() *pushes {
	return &pushes{running: map[string]*pushCall{}, waiting: map[string]*pushCall{}}
}

// do returns after a call of push that started after do.
func (p *pushes) do(ctx context.Context, repo fleet.RepositoryID, refs []string, push func(context.Context, fleet.RepositoryID, ...string) error) error {
	sorted := slices.Clone(refs)
	slices.Sort(sorted)
	key := string(repo) + "\x00" + strings.Join(sorted, "\x00")
	p.mu.Lock()
	call, before := p.waiting[key], p.running[key]
	if call == nil {
		call = &pushCall{done: make(chan struct{})}
		p.waiting[key] = call
		// The first caller may disconnect; the others still wait for the same write.
		go p.run(context.WithoutCancel(ctx), key, call, before, func(ctx context.Context) error { return push(ctx, repo, refs...) })
	}
	p.mu.Unlock()
	select {
	case <-call.done:
		return call.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run writes once, after the previous write has ended.
func (p *pushes) run(ctx context.Context, key string, call, before *pushCall, push func(context.Context) error) {
	if before != nil {
		<-before.done
	}
	p.mu.Lock()
	delete(p.waiting, key)
	p.running[key] = call
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	call.err = push(ctx)
	p.mu.Lock()
	if p.running[key] == call {
		delete(p.running, key)
	}
	p.mu.Unlock()
	close(call.done)
}
