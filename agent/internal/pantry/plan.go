package pantry

import (
	"maps"
	"slices"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// stock is what the Secrets hold.
type stock struct {
	*layout
	agent   Agent
	digests map[fleet.TargetID]string // of the state that is kept of each target
	states  map[fleet.TargetID]string // the same, as written: to tell whether it has changed
	parts   map[string][]string       // whole bundles by digest: the keys of their parts
}

func newStock() *stock {
	return &stock{
		layout: newLayout(), digests: map[fleet.TargetID]string{}, states: map[fleet.TargetID]string{}, parts: map[string][]string{},
	}
}

// planner turns changes into a batch, and the stock into what it is afterwards.
type planner struct {
	*stock
	budget int
	out    batch
}

func (s *stock) plan(budget int) *planner {
	return &planner{stock: s, budget: budget, out: newBatch()}
}

// tell keeps what the server said of the agent. What is kept of another agent goes.
func (p *planner) tell(a Agent) error {
	if p.agent.ID != "" && p.agent.ID != a.ID {
		for _, id := range slices.Sorted(maps.Keys(p.digests)) {
			p.forget(id)
		}
	}
	content, err := encodeAgent(a)
	if err != nil {
		return err
	}
	// It is small and comes first: there is always room for it, whatever the budget.
	if n := p.place(agentKey, -1, len(content), 1<<30); n >= 0 {
		p.out.states.set(n, agentKey, content)
		p.agent = a
	}
	return nil
}

// keep keeps the state of a target with its bundle. It reports whether there was room.
func (p *planner) keep(d engine.Desired) (fits bool, err error) {
	content, err := encodeTarget(d)
	if err != nil || p.states[d.Target] == string(content) {
		return true, err
	}
	near := -1
	if n, ok := p.at[targetKey(d.Target)]; ok {
		near = n
	}
	if !p.store(d, near) {
		return false, nil
	}
	if keys := p.parts[d.State.Digest]; near < 0 {
		near = p.at[keys[len(keys)-1]]
	}
	n := p.place(targetKey(d.Target), near, len(content), p.budget)
	if n < 0 {
		return false, nil
	}
	p.out.states.set(n, targetKey(d.Target), content)
	p.digests[d.Target], p.states[d.Target] = d.State.Digest, string(content)
	return true, nil
}

// store keeps a bundle, if it is not there yet.
func (p *planner) store(d engine.Desired, near int) bool {
	if p.parts[d.State.Digest] != nil {
		return true
	}
	_, packed, _ := d.Objects.Pack()
	parts := split(packed)
	keys := partKeys(d.State.Digest, len(parts))
	for i, key := range keys {
		n := p.place(key, near, len(parts[i]), p.budget)
		if n < 0 {
			for _, placed := range keys[:i] {
				delete(p.out.bundles[p.at[placed]], placed)
				p.drop(placed)
			}
			return false
		}
		p.out.bundles.set(n, key, parts[i])
	}
	p.parts[d.State.Digest] = keys
	return true
}

// place finds a slot for an item, where it is if it still fits there, and returns -1 if there is none.
func (p *planner) place(key string, near, size, budget int) int {
	if was, ok := p.at[key]; ok {
		p.drop(key)
		if n := p.room(was, size+len(key), budget); n == was {
			p.put(n, key, size)
			return n
		}
		p.out.waste.set(was, key, nil)
	}
	n := p.room(near, size+len(key), budget)
	if n >= 0 {
		p.put(n, key, size)
	}
	return n
}

// forget drops the state of a target. Its bundle goes with the sweep.
func (p *planner) forget(id fleet.TargetID) {
	if n, ok := p.at[targetKey(id)]; ok {
		p.out.states.set(n, targetKey(id), nil)
		p.drop(targetKey(id))
	}
	delete(p.digests, id)
	delete(p.states, id)
}

// sweep drops what no state names: bundles that were replaced, and what could not be read.
func (p *planner) sweep() {
	named := map[string]bool{agentKey: true}
	for id, digest := range p.digests {
		named[targetKey(id)] = true
		for _, key := range p.parts[digest] {
			named[key] = true
		}
	}
	for digest, keys := range p.parts {
		if !named[keys[0]] {
			delete(p.parts, digest)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.at)) {
		if named[key] {
			continue
		}
		n := p.at[key]
		if _, unsent := p.out.bundles[n][key]; unsent {
			delete(p.out.bundles[n], key)
		} else {
			p.out.waste.set(n, key, nil)
		}
		p.drop(key)
	}
}
