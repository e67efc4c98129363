package offlinecache

import (
	"maps"
	"slices"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// contents describes the items in the Secrets.
type contents struct {
	*layout
	agent   Agent
	digests map[fleet.TargetID]string // of the stored state of each target
	states  map[fleet.TargetID]string // the stored states as written, to detect changes
	parts   map[string][]string       // keys of the parts of complete bundles, by digest
}

func newContents() *contents {
	return &contents{
		layout: newLayout(), digests: map[fleet.TargetID]string{}, states: map[fleet.TargetID]string{}, parts: map[string][]string{},
	}
}

// planner turns changes into a batch of writes, and updates contents to the state after them.
type planner struct {
	*contents
	budget int
	out    batch
}

func (s *contents) plan(budget int) *planner {
	return &planner{contents: s, budget: budget, out: newBatch()}
}

// setAgent stores the configuration of the agent. It removes all targets of another agent.
func (p *planner) setAgent(a Agent) error {
	if p.agent.ID != "" && p.agent.ID != a.ID {
		for _, id := range slices.Sorted(maps.Keys(p.digests)) {
			p.forget(id)
		}
	}
	content, err := encodeAgent(a)
	if err != nil {
		return err
	}
	// The configuration is small and comes first, so the budget does not apply.
	if n := p.allocate(agentKey, -1, len(content), 1<<30); n >= 0 {
		p.out.states.set(n, agentKey, content)
		p.agent = a
	}
	return nil
}

// keep stores the state of a target with its bundle. It reports whether both fit.
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
	n := p.allocate(targetKey(d.Target), near, len(content), p.budget)
	if n < 0 {
		return false, nil
	}
	p.out.states.set(n, targetKey(d.Target), content)
	p.digests[d.Target], p.states[d.Target] = d.State.Digest, string(content)
	return true, nil
}

// store stores a bundle, unless it is stored already.
func (p *planner) store(d engine.Desired, near int) bool {
	if p.parts[d.State.Digest] != nil {
		return true
	}
	_, packed, _ := d.Objects.Pack()
	parts := split(packed)
	keys := partKeys(d.State.Digest, len(parts))
	for i, key := range keys {
		n := p.allocate(key, near, len(parts[i]), p.budget)
		if n < 0 {
			for _, allocated := range keys[:i] {
				delete(p.out.bundles[p.at[allocated]], allocated)
				p.drop(allocated)
			}
			return false
		}
		p.out.bundles.set(n, key, parts[i])
	}
	p.parts[d.State.Digest] = keys
	return true
}

// allocate chooses a slot for an item: its current one if the item still fits there. It returns -1 if it fits nowhere.
func (p *planner) allocate(key string, near, size, budget int) int {
	if was, ok := p.at[key]; ok {
		p.drop(key)
		if n := p.findSlot(was, size+len(key), budget); n == was {
			p.put(n, key, size)
			return n
		}
		p.out.unused.set(was, key, nil)
	}
	n := p.findSlot(near, size+len(key), budget)
	if n >= 0 {
		p.put(n, key, size)
	}
	return n
}

// forget removes the state of a target. removeUnused removes its bundle.
func (p *planner) forget(id fleet.TargetID) {
	if n, ok := p.at[targetKey(id)]; ok {
		p.out.states.set(n, targetKey(id), nil)
		p.drop(targetKey(id))
	}
	delete(p.digests, id)
	delete(p.states, id)
}

// removeUnused removes items that no state refers to: replaced bundles and unreadable items.
func (p *planner) removeUnused() {
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
			p.out.unused.set(n, key, nil)
		}
		p.drop(key)
	}
}
