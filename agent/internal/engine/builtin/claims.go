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
type claims struct {
	mu     sync.Mutex
	byKey  map[inventory.Key][]fleet.TargetID
	byDesc map[fleet.TargetID][]inventory.Key // present for every target that was ever set
}

func newClaims() *claims {
	return &claims{byKey: map[inventory.Key][]fleet.TargetID{}, byDesc: map[fleet.TargetID][]inventory.Key{}}
}

// set replaces what d's target desires, and returns the targets that desire something which it
// has let go of: they may have been waiting for it.
func (c *claims) set(d engine.Desired) []fleet.TargetID {
	keys := claimedKeys(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.byDesc[d.Target]
	c.byDesc[d.Target] = keys
	for _, key := range old {
		c.byKey[key] = slices.DeleteFunc(c.byKey[key], func(id fleet.TargetID) bool { return id == d.Target })
		if len(c.byKey[key]) == 0 {
			delete(c.byKey, key)
		}
	}
	for _, key := range keys {
		c.byKey[key] = append(c.byKey[key], d.Target)
	}
	waiting := map[fleet.TargetID]bool{}
	for _, key := range old {
		if !slices.Contains(c.byKey[key], d.Target) {
			for _, id := range c.byKey[key] {
				waiting[id] = true
			}
		}
	}
	return slices.Collect(maps.Keys(waiting))
}

// drop forgets a target.
func (c *claims) drop(id fleet.TargetID) {
	c.set(engine.Desired{Target: id})
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byDesc, id)
}

// other returns a target other than me that desires key, or "".
func (c *claims) other(key inventory.Key, me fleet.TargetID) fleet.TargetID {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.byKey[key] {
		if id != me {
			return id
		}
	}
	return ""
}

// abandoned reports whether owner is a target of this engine that was told what it shall hold and
// no longer desires key.
func (c *claims) abandoned(key inventory.Key, owner fleet.TargetID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, here := c.byDesc[owner]
	return here && !slices.Contains(c.byKey[key], owner)
}

// claimedKeys lists the objects that d desires. Where only the cluster knows whether a kind has
// namespaces, both readings are claimed: a claim too many at worst keeps an object.
func claimedKeys(d engine.Desired) []inventory.Key {
	if d.Objects == nil {
		return nil
	}
	var keys []inventory.Key
	claim := func(ref fleet.ObjectRef) {
		// What is beyond its limits a target never gets, so that it must not keep it from others.
		if d.State.Limits.Allows(ref, ref.Namespace != "") {
			keys = append(keys, inventory.KeyOf(ref))
		}
	}
	for _, o := range d.Objects.Objects() {
		ref := placed(o.Ref, d.State.Namespace)
		claim(ref)
		if _, known := manifest.IsClusterScoped(ref); !known && ref.Namespace != "" {
			ref.Namespace = ""
			claim(ref)
		}
	}
	return keys
}

// placed fills in the default namespace, unless the kind is known to have none.
func placed(ref fleet.ObjectRef, namespace string) fleet.ObjectRef {
	if scoped, known := manifest.IsClusterScoped(ref); known && scoped {
		ref.Namespace = ""
	} else if ref.Namespace == "" {
		ref.Namespace = namespace
	}
	return ref
}
