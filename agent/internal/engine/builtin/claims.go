package builtin

import (
	"maps"
	"slices"
	"sync"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// claims knows which target desires which object, so that an object which moves from one target
// to another is handed over and never deleted in between. Safe for concurrent use.
//
// A claim that cannot be made good keeps an object from nobody: one of a target that only rehearses, and
// one that is idle, because its target has tried and may not. What is idle counts again when the target
// is set anew, when whoever has the object lets go of it, and when it was applied after all.
type claims struct {
	mu       sync.Mutex
	byKey    map[inventory.Key][]fleet.TargetID
	byTarget map[fleet.TargetID][]inventory.Key // present for every target that was ever set
	// current has the one target of each deployment, by tenant and name, that desires anything.
	current   map[string]fleet.TargetID
	dryRuns   map[fleet.TargetID]bool
	suspended map[claim]bool
	// waiting has the targets that keep something because of what others claim, and want to be told when that is less; freed those
	// that are to be told. drops counts how often it was less.
	waiting, released map[fleet.TargetID]bool
	releases          int
}

// claim is that a target desires an object.
type claim struct {
	target fleet.TargetID
	key    inventory.Key
}

func newClaims() *claims {
	return &claims{
		byKey: map[inventory.Key][]fleet.TargetID{}, byTarget: map[fleet.TargetID][]inventory.Key{}, current: map[string]fleet.TargetID{},
		dryRuns: map[fleet.TargetID]bool{}, suspended: map[claim]bool{},
		waiting: map[fleet.TargetID]bool{}, released: map[fleet.TargetID]bool{},
	}
}

// set replaces what d's target desires. It returns the targets that desire something which was let go
// of, as they may have been waiting for it, and the target that d's supersedes, or "".
//
// A server has one target of a deployment on an agent. So when another one of the same deployment is
// desired, the one before is no more, even if its tombstone has not arrived or never will: a server
// that was restored from a backup may know nothing of it. It claims nothing from here on.
func (c *claims) set(d engine.Desired) (waiting []fleet.TargetID, superseded fleet.TargetID) {
	keys, name := claimedKeys(d), liveName(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.current, func(_ string, id fleet.TargetID) bool { return id == d.Target })
	if name != "" {
		superseded = c.current[name]
		c.current[name] = d.Target
	}
	delete(c.dryRuns, d.Target)
	if d.State.Policy.DryRun && d.Objects != nil {
		c.dryRuns[d.Target] = true
	}
	waits := c.replaceLocked(d.Target, keys)
	if superseded != "" {
		maps.Copy(waits, c.replaceLocked(superseded, nil))
	}
	delete(waits, superseded)
	return slices.Collect(maps.Keys(waits)), superseded
}

// liveName names the deployment of a target that desires objects; "" of any other.
func liveName(d engine.Desired) string {
	if d.Objects == nil || d.Deployment == "" {
		return ""
	}
	return d.Tenant + "/" + d.Deployment
}

// replaceLocked gives a target other keys, and returns who desires what it had and has no more.
func (c *claims) replaceLocked(target fleet.TargetID, keys []inventory.Key) map[fleet.TargetID]bool {
	old := c.byTarget[target]
	c.byTarget[target] = keys
	for _, key := range old {
		delete(c.suspended, claim{target, key})
		c.byKey[key] = slices.DeleteFunc(c.byKey[key], func(id fleet.TargetID) bool { return id == target })
		if len(c.byKey[key]) == 0 {
			delete(c.byKey, key)
		}
	}
	for _, key := range keys {
		c.byKey[key] = append(c.byKey[key], target)
	}
	waiting := map[fleet.TargetID]bool{}
	for _, key := range old {
		if !slices.Contains(c.byKey[key], target) {
			c.releaseLocked()
			for _, id := range c.byKey[key] {
				waiting[id] = true
				delete(c.suspended, claim{id, key}) // now it can be had
			}
		}
	}
	return waiting
}

// drop forgets a target.
func (c *claims) drop(id fleet.TargetID) {
	c.set(engine.Desired{Target: id})
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byTarget, id)
}

// other returns a target other than me that desires key and may get it, or "".
func (c *claims) other(key inventory.Key, me fleet.TargetID) fleet.TargetID {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.byKey[key] {
		if id != me && !c.dryRuns[id] && !c.suspended[claim{id, key}] {
			return id
		}
	}
	return ""
}

// suspend makes the claim of a target idle: it was refused the object, by holder if that is not "". A holder
// that has let go of it meanwhile is no reason: the target tries again, and must find it in place.
func (c *claims) suspend(key inventory.Key, target, holder fleet.TargetID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, here := c.byTarget[holder]; here && holder != "" && !slices.Contains(c.byKey[key], holder) {
		return
	}
	if slices.Contains(c.byKey[key], target) && !c.suspended[claim{target, key}] {
		c.suspended[claim{target, key}] = true
		c.releaseLocked()
	}
}

// releaseCount is how often less was claimed than before.
func (c *claims) releaseCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.releases
}

// await has a target told, once, when less is claimed than now. It reports whether it is less already than when dropped was since.
func (c *claims) await(target fleet.TargetID, since int) (less bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[target] = true
	return c.releases != since
}

func (c *claims) releaseLocked() {
	c.releases++
	maps.Copy(c.released, c.waiting)
	clear(c.waiting)
}

// takeReleased returns those that are to be told, once.
func (c *claims) takeReleased() []fleet.TargetID {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := slices.Collect(maps.Keys(c.released))
	clear(c.released)
	return ids
}

// resume makes the claim of a target count again: it has the object.
func (c *claims) resume(key inventory.Key, target fleet.TargetID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.suspended, claim{target, key})
}

// abandoned reports whether owner is a target of this engine that was told what it shall hold and
// no longer desires key.
func (c *claims) abandoned(key inventory.Key, owner fleet.TargetID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, here := c.byTarget[owner]
	return here && !slices.Contains(c.byKey[key], owner)
}

// claimedKeys lists the objects that d desires, in every reading.
func claimedKeys(d engine.Desired) []inventory.Key {
	if d.Objects == nil {
		return nil
	}
	var keys []inventory.Key
	for _, o := range d.Objects.Objects() {
		for _, ref := range manifest.Claims(o.Ref, d.State.Namespace) {
			// What is beyond its limits a target never gets, so that it must not keep it from others.
			if d.State.Limits.Allows(ref, ref.Namespace != "") {
				keys = append(keys, inventory.KeyOf(ref))
			}
		}
	}
	return keys
}
