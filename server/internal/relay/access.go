package relay

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// checkEvery is how often the access of open requests is checked again, once for all requests of a caller to an agent. It
// queries the database instead of following changes, so that it also works on a replica that gets changes late.
const checkEvery = 2 * time.Second

// accessKey identifies the access of a caller to an agent.
type accessKey struct{ token, tenant, agent string }

// guards ends the open requests of callers that lose their access.
type guards struct {
	every  time.Duration
	access func(ctx context.Context, p auth.Principal, tenant, agent string) (control.Access, error)

	mu   sync.Mutex
	open map[accessKey]*guarded
}

type guarded struct {
	principal auth.Principal // of the newest request: its roles may have changed
	requests  map[*guardedRequest]struct{}
	stop      context.CancelFunc
}

type guardedRequest struct {
	was control.Access
	end func()
}

// watch calls end when a caller loses its access or gets another one. Call leave when the request ends.
func (g *guards) watch(p auth.Principal, key accessKey, was control.Access, end func()) (leave func()) {
	r := &guardedRequest{was: was, end: end}
	g.mu.Lock()
	defer g.mu.Unlock()
	of := g.open[key]
	if of == nil {
		ctx, stop := context.WithCancel(context.Background())
		of = &guarded{requests: map[*guardedRequest]struct{}{}, stop: stop}
		g.open[key] = of
		go g.run(ctx, key, of)
	}
	of.requests[r], of.principal = struct{}{}, p
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if delete(of.requests, r); len(of.requests) == 0 && g.open[key] == of {
			delete(g.open, key)
			of.stop()
		}
	}
}

// run checks repeatedly until ctx ends. While the database does not answer, requests stay open.
func (g *guards) run(ctx context.Context, key accessKey, of *guarded) {
	ticker := time.NewTicker(g.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		g.mu.Lock()
		p := of.principal
		g.mu.Unlock()
		now, err := g.access(ctx, p, key.tenant, key.agent)
		if err != nil && !refused(err) {
			continue
		}
		g.mu.Lock()
		for r := range of.requests {
			if err != nil || !sameAccess(now, r.was) {
				r.end()
			}
		}
		g.mu.Unlock()
	}
}

// sameAccess reports whether an access allows the same as before.
func sameAccess(a, b control.Access) bool {
	return a.Agent.ID == b.Agent.ID && a.User == b.User && a.ReadOnly == b.ReadOnly && reflect.DeepEqual(a.Groups, b.Groups)
}
