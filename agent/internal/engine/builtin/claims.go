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

// claims knows which target desires which object, so that an object that moves from one target to another is handed over
// and never deleted in between. It tells its listener when that changes for a target. Safe for concurrent use.
//
// A claim that cannot succeed keeps an object from nobody: the claim of a dry run, and a suspended one, whose target has
// tried and may not have the object. A suspended claim counts again when its target is set again, when the owner of the
// object stops desiring it, and when the object was applied after all.
type claims struct {
	listener claimListener

	mu       sync.Mutex
	byKey    map[inventory.Key][]fleet.TargetID
	byTarget map[fleet.TargetID][]inventory.Key // present for every target that was ever set
	// current has the one target of each deployment, by tenant and name, that desires anything.
	current   map[string]fleet.TargetID
	dryRuns   map[fleet.TargetID]bool
	suspended map[claim]bool
	// waiting has the targets that keep something because of the claims of others. releases counts how often a claim was
	// released.
	waiting  map[fleet.TargetID]bool
	releases int
}

// claimListener is told about changes of claims, without the lock of the claims. Its methods must not block.
type claimListener interface {
	// superseded is called when another target of the same deployment replaces a target.
	superseded(old, by fleet.TargetID)
	// available is called for a target that desires an object which another target does not desire any more.
	available(target fleet.TargetID)
	// released is called once for a target that awaits releases, when a claim is released.
	released(target fleet.TargetID)
}

// claim is that a target desires an object.
type claim struct {
	target fleet.TargetID
	key    inventory.Key
}

func newClaims(listener claimListener) *claims {
	return &claims{
		listener: listener, byKey: map[inventory.Key][]fleet.TargetID{}, byTarget: map[fleet.TargetID][]inventory.Key{},
		current: map[string]fleet.TargetID{}, dryRuns: map[fleet.TargetID]bool{}, suspended: map[claim]bool{}, waiting: map[fleet.TargetID]bool{},
	}
}

// set replaces the claims of a target.
//
// A server has one target of a deployment on an agent. So when another target of the same deployment is set, it supersedes
// the one before, even if the tombstone of that one has not arrived or never will: a server that was restored from a
// backup may not know it. A superseded target claims nothing.
func (c *claims) set(d engine.Desired) {
	keys, name := claimedKeys(d), liveName(d)
	c.mu.Lock()
	before := c.releases
	maps.DeleteFunc(c.current, func(_ string, id fleet.TargetID) bool { return id == d.Target })
	superseded := fleet.TargetID("")
	if name != "" {
		superseded = c.current[name]
		c.current[name] = d.Target
	}
	delete(c.dryRuns, d.Target)
	if d.State.Policy.DryRun && d.Objects != nil {
		c.dryRuns[d.Target] = true
	}
	available := c.replaceLocked(d.Target, keys)
	if superseded != "" {
		maps.Copy(available, c.replaceLocked(superseded, nil))
	}
	delete(available, superseded)
	released := c.releasedLocked(before)
	c.mu.Unlock()
	if superseded != "" {
		c.listener.superseded(superseded, d.Target)
	}
	for id := range available {
		c.listener.available(id)
	}
	c.tell(released)
}

// liveName returns the deployment of a target that desires objects; "" for any other.
func liveName(d engine.Desired) string {
	if d.Objects == nil || d.Deployment == "" {
		return ""
	}
	return d.Tenant + "/" + d.Deployment
}

// replaceLocked replaces the keys of a target. It returns the targets that desire an object which the target does not
// desire any more.
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
			c.releases++
			for _, id := range c.byKey[key] {
				waiting[id] = true
				delete(c.suspended, claim{id, key}) // the object is available now
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

// suspend suspends the claim of a target that was refused the object, by holder if that is not "". If holder does not
// desire the object any more, the claim stays: the target tries again.
func (c *claims) suspend(key inventory.Key, target, holder fleet.TargetID) {
	c.mu.Lock()
	if _, here := c.byTarget[holder]; here && holder != "" && !slices.Contains(c.byKey[key], holder) {
		c.mu.Unlock()
		return
	}
	before := c.releases
	if slices.Contains(c.byKey[key], target) && !c.suspended[claim{target, key}] {
		c.suspended[claim{target, key}] = true
		c.releases++
	}
	released := c.releasedLocked(before)
	c.mu.Unlock()
	c.tell(released)
}

// releaseCount returns how often a claim was released.
func (c *claims) releaseCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.releases
}

// await has the listener told, once, when a claim is released after releaseCount was since. If one was, it is told now.
func (c *claims) await(target fleet.TargetID, since int) {
	c.mu.Lock()
	late := c.releases != since
	c.waiting[target] = !late
	c.mu.Unlock()
	if late {
		c.listener.released(target)
	}
}

// releasedLocked returns the targets to tell if a claim was released since, and forgets that they wait.
func (c *claims) releasedLocked(since int) map[fleet.TargetID]bool {
	if c.releases == since {
		return nil
	}
	waiting := c.waiting
	c.waiting = map[fleet.TargetID]bool{}
	maps.DeleteFunc(waiting, func(_ fleet.TargetID, waits bool) bool { return !waits })
	return waiting
}

func (c *claims) tell(released map[fleet.TargetID]bool) {
	for id := range released {
		c.listener.released(id)
	}
}

// resume makes the suspended claim of a target count again: it has the object.
func (c *claims) resume(key inventory.Key, target fleet.TargetID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.suspended, claim{target, key})
}

// abandoned reports whether owner is a target of this engine that has a desired state and does not desire key.
func (c *claims) abandoned(key inventory.Key, owner fleet.TargetID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, here := c.byTarget[owner]
	return here && !slices.Contains(c.byKey[key], owner)
}

// claimedKeys returns the objects that d desires, in every possible reading of their scope.
func claimedKeys(d engine.Desired) []inventory.Key {
	if d.Objects == nil {
		return nil
	}
	var keys []inventory.Key
	for _, o := range d.Objects.Objects() {
		for _, ref := range manifest.Claims(o.Ref, d.State.Namespace) {
			// A target never gets an object outside its limits, so it must not keep it from others.
			if d.State.Limits.Allows(ref, ref.Namespace != "") {
				keys = append(keys, inventory.KeyOf(ref))
			}
		}
	}
	return keys
}
