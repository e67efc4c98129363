package offlinecache

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
)

// work is the set of changes of one write.
type work struct {
	agent   *Agent
	changes map[fleet.TargetID]change
}

// flush writes the pending changes to the Secrets.
func (p *Cache) flush(ctx context.Context) error {
	p.io.Lock()
	defer p.io.Unlock()
	w := p.takePending()
	if w.agent == nil && len(w.changes) == 0 {
		return nil
	}
	again, err := p.write(ctx, w)
	if err != nil {
		p.stored = nil // part of it may be written
		p.putBack(w)
	} else {
		p.recordStored(w)
		p.postpone(again)
	}
	p.endWrite()
	for id, c := range w.changes {
		if _, more := again[id]; !more {
			call(c.then)
		}
	}
	return err
}

// takePending removes and returns the pending changes. A target that is about to be stored counts as stored.
func (p *Cache) takePending() work {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := work{agent: p.agent, changes: p.changes}
	p.agent, p.changes, p.writing = nil, map[fleet.TargetID]change{}, w.changes
	for id, c := range w.changes {
		if c.Objects != nil {
			p.kept[id] = true
		}
	}
	return w
}

// putBack makes the changes of a failed write pending again, unless a newer change of the target is.
func (p *Cache) putBack(w work) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.agent == nil {
		p.agent = w.agent
	}
	for id, c := range w.changes {
		if _, newer := p.changes[id]; !newer {
			c.then = nil
			p.changes[id] = c
		}
	}
}

// postpone makes changes pending again, with their callbacks.
func (p *Cache) postpone(again map[fleet.TargetID]change) {
	if len(again) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range again {
		next, newer := p.changes[id]
		p.changes[id] = c
		if newer {
			p.changeLocked(next)
		}
	}
	p.urgent.Set()
}

// endWrite ends the write that takePending has started.
func (p *Cache) endWrite() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = nil
}

// recordStored records which targets are stored now.
func (p *Cache) recordStored(w work) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = p.stored.agent
	for id := range w.changes {
		if p.stored.states[id] == "" {
			delete(p.kept, id)
		}
	}
}

// write applies w to the Secrets. It returns the changes that did not fit before and may fit after this write.
func (p *Cache) write(ctx context.Context, w work) (again map[fleet.TargetID]change, err error) {
	if p.stored == nil {
		if _, err := p.load(ctx); err != nil {
			return nil, err
		}
	}
	plan, again, err := p.plan(w)
	if err != nil {
		return nil, err
	}
	for _, write := range plan.out.writes() {
		if err := p.send(ctx, p.stored, write); err != nil {
			return nil, err
		}
	}
	return again, nil
}

// plan computes the requests for w. The changes in again may fit after these requests.
func (p *Cache) plan(w work) (plan *planner, again map[fleet.TargetID]change, err error) {
	plan, again = p.stored.plan(p.cfg.Budget), map[fleet.TargetID]change{}
	if w.agent != nil && !sameAgent(*w.agent, p.stored.agent) {
		if err := plan.setAgent(*w.agent); err != nil {
			return nil, nil, err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.changes)) {
		c := w.changes[id]
		if c.Objects == nil {
			plan.forget(id)
			delete(p.skipped, id)
			continue
		}
		before := p.stored.states[id] != ""
		fits, err := plan.keep(c.Desired)
		switch {
		case err != nil:
			return nil, nil, err
		case fits:
			delete(p.skipped, id)
		case before:
			plan.forget(id) // out of date; without it there may be enough space
			again[id] = c
		default:
			p.skip(c)
		}
	}
	plan.removeUnused()
	return plan, again, nil
}

// skip reports, once, that a bundle is not stored.
func (p *Cache) skip(c change) {
	if p.skipped[c.Target] == c.State.Digest {
		return
	}
	p.skipped[c.Target] = c.State.Digest
	message := fmt.Sprintf("The objects do not fit into the offline cache of %d KiB (--offline-budget). If the agent restarts while "+
		"the server is unreachable, it does not correct drift of this deployment until the server is reachable again.", p.cfg.Budget>>10)
	p.cfg.Log.Warn("a deployment does not fit into the offline cache", obs.KeyTarget, string(c.Target), obs.KeyDeployment, c.Deployment)
	p.cfg.Skipped(c.Desired, message)
}

func sameAgent(a, b Agent) bool {
	return a.ID == b.ID && a.Name == b.Name && a.Tenant == b.Tenant && a.Scope == b.Scope &&
		slices.Equal(a.Namespaces, b.Namespaces) && slices.Equal(a.IncludeKinds, b.IncludeKinds) &&
		slices.Equal(a.ExcludeKinds, b.ExcludeKinds) && a.Refused == b.Refused
}
