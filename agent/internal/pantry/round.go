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
	w := p.take()
	if w.agent == nil && len(w.changes) == 0 {
		return nil
	}
	err := p.write(ctx, w)
	if err != nil {
		p.stock = nil // what of it was written is not known
		p.putBack(w)
	} else {
		p.settle(w)
	}
	for _, c := range w.changes {
		call(c.then)
	}
	return err
}

// take empties what is waiting. A target that is about to be kept counts as kept.
func (p *Pantry) take() work {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := work{agent: p.agent, changes: p.changes}
	p.agent, p.changes = nil, map[fleet.TargetID]change{}
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

// write makes the Secrets hold what w says.
func (p *Pantry) write(ctx context.Context, w work) error {
	if p.stock == nil {
		if _, err := p.Load(ctx); err != nil {
			return err
		}
	}
	plan, again, err := p.plan(w)
	if err != nil {
		return err
	}
	for _, write := range plan.out.writes() {
		if err := p.send(ctx, p.stock, write); err != nil {
			return err
		}
	}
	if len(again) > 0 {
		p.putBack(work{changes: again})
		signal(p.wake)
	}
	return nil
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
