package pantry

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
)

// work is what one round is to do.
type work struct {
	agent   *Agent
	changes map[fleet.TargetID]change
}

// round brings the Secrets up to date with what has changed since the last one.
func (p *Pantry) round(ctx context.Context) error {
	p.working.Lock()
	defer p.working.Unlock()
	w := p.take()
	if w.agent == nil && len(w.changes) == 0 {
		return nil
	}
	again, err := p.write(ctx, w)
	if err != nil {
		p.stock = nil // what of it was written is not known
		p.putBack(w)
	} else {
		p.settle(w)
		p.postpone(again)
	}
	p.written()
	for id, c := range w.changes {
		if _, more := again[id]; !more {
			call(c.then)
		}
	}
	return err
}

// take empties what is waiting. A target that is about to be kept counts as kept.
func (p *Pantry) take() work {
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

// putBack has the next round do what this one could not, unless something newer has come.
func (p *Pantry) putBack(w work) {
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

// postpone leaves changes to the next round, with whoever waits for them.
func (p *Pantry) postpone(again map[fleet.TargetID]change) {
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
	signal(p.urgent)
}

// written ends what take has begun.
func (p *Pantry) written() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = nil
}

// settle notes what is kept now.
func (p *Pantry) settle(w work) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = p.stock.agent
	for id := range w.changes {
		if p.stock.states[id] == "" {
			delete(p.kept, id)
		}
	}
}

// write makes the Secrets hold what w says, but for what it returns: that may fit now.
func (p *Pantry) write(ctx context.Context, w work) (again map[fleet.TargetID]change, err error) {
	if p.stock == nil {
		if _, err := p.load(ctx); err != nil {
			return nil, err
		}
	}
	plan, again, err := p.plan(w)
	if err != nil {
		return nil, err
	}
	for _, write := range plan.out.writes() {
		if err := p.send(ctx, p.stock, write); err != nil {
			return nil, err
		}
	}
	return again, nil
}

// plan works out what to send. again is what may fit when that has been sent.
func (p *Pantry) plan(w work) (plan *planner, again map[fleet.TargetID]change, err error) {
	plan, again = p.stock.plan(p.cfg.Budget), map[fleet.TargetID]change{}
	if w.agent != nil && !sameAgent(*w.agent, p.stock.agent) {
		if err := plan.tell(*w.agent); err != nil {
			return nil, nil, err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.changes)) {
		c := w.changes[id]
		if c.Objects == nil {
			plan.forget(id)
			delete(p.left, id)
			continue
		}
		before := p.stock.states[id] != ""
		fits, err := plan.keep(c.Desired)
		switch {
		case err != nil:
			return nil, nil, err
		case fits:
			delete(p.left, id)
		case before:
			plan.forget(id) // it is out of date; without it there may be room
			again[id] = c
		default:
			p.leave(c)
		}
	}
	plan.sweep()
	return plan, again, nil
}

// leave tells, once, of a bundle that is not kept.
func (p *Pantry) leave(c change) {
	if p.left[c.Target] == c.State.Digest {
		return
	}
	p.left[c.Target] = c.State.Digest
	why := fmt.Sprintf("its objects do not fit into the %d KiB that are kept for when the server is away (--offline-budget): "+
		"after a restart without a server they are not healed until it is back", p.cfg.Budget>>10)
	p.cfg.Log.Warn("a deployment is not kept", obs.KeyTarget, string(c.Target), obs.KeyDeployment, c.Deployment, obs.KeyReason, why)
	p.cfg.Left(c.Desired, why)
}

func sameAgent(a, b Agent) bool {
	return a.ID == b.ID && a.Name == b.Name && a.Tenant == b.Tenant && a.Scope == b.Scope &&
		slices.Equal(a.Namespaces, b.Namespaces) && a.Refused == b.Refused
}
