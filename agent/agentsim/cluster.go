package agentsim

import (
	"cmp"
	"crypto/rand"
	"maps"
	"slices"
	"sync"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// Cluster is a cluster in memory, with the inventories of an agent. It outlives the agent processes that work on it, one at a
// time. It is safe for concurrent use.
type Cluster struct {
	// observe is called for every action of an agent, in order, with the lock held. It must not block or call methods of
	// the Cluster.
	observe func(Event)
	// uid is the cluster UID that agents report.
	uid string

	mu          sync.Mutex
	objects     map[objectKey]Object
	inventories map[fleet.TargetID]*inventory
}

// Object is one object in a Cluster.
type Object struct {
	fleet.ObjectRef
	// Target is the owner; "" when the object is detached.
	Target fleet.TargetID
	// Deployment is the tenant/name that has applied the object last.
	Deployment string
	Content    map[string]any
}

// EventKind is the kind of an action.
type EventKind string

// The kinds of event.
const (
	EventAccepted EventKind = "accepted" // a desired state was accepted
	EventIgnored  EventKind = "ignored"  // a desired state was older than the current one
	EventKept     EventKind = "kept"     // an object has left the bundle, and stays because its prune is held
	EventDeleted  EventKind = "deleted"
	EventDetached EventKind = "detached" // an object stays and has no owner
)

// Event is an action of an agent in a Cluster.
type Event struct {
	Kind    EventKind
	Replica string
	// State is the desired state that caused the action. The objects of Desired are shared and read-only.
	Target             fleet.TargetID
	Tenant, Deployment string
	State              fleet.Desired
	Desired            *manifest.Set
	// Object is the object that was kept, deleted or detached.
	Object Object
}

// inventory is the inventory of one target: the objects that it may have created.
type inventory struct {
	version     fleet.Version
	digest      string
	entries     map[objectKey]fleet.ObjectRef
	keptAt      map[objectKey]fleet.Version // version for which EventKept was sent
	unconfirmed map[objectKey]bool          // held by the prune limit or by HoldPrune, until the deletion is confirmed
}

// objectKey identifies an object. The version of its API group is not part of the identity.
type objectKey struct{ group, kind, namespace, name string }

func keyOf(r fleet.ObjectRef) objectKey { return objectKey{r.Group, r.Kind, r.Namespace, r.Name} }

// NewCluster returns an empty cluster. observe may be nil.
func NewCluster(observe func(Event)) *Cluster {
	if observe == nil {
		observe = func(Event) {}
	}
	return &Cluster{observe: observe, uid: rand.Text(), objects: map[objectKey]Object{}, inventories: map[fleet.TargetID]*inventory{}}
}

// Objects returns all objects, sorted by namespace and name.
func (c *Cluster) Objects() []Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.objects), func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
}

// Targets returns the version of each target that has an inventory.
func (c *Cluster) Targets() map[fleet.TargetID]fleet.Version {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[fleet.TargetID]fleet.Version{}
	for id, b := range c.inventories {
		out[id] = b.version
	}
	return out
}

// recovered returns the targets that a new agent process finds.
func (c *Cluster) recovered() []engine.Held {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []engine.Held
	for id, b := range c.inventories {
		out = append(out, engine.Held{Target: id, Version: b.version, Digest: b.digest})
	}
	return out
}

// inventoryLocked returns the inventory of a target. It creates it if necessary.
func (c *Cluster) inventoryLocked(id fleet.TargetID) *inventory {
	b := c.inventories[id]
	if b == nil {
		b = &inventory{entries: map[objectKey]fleet.ObjectRef{}, keptAt: map[objectKey]fleet.Version{}, unconfirmed: map[objectKey]bool{}}
		c.inventories[id] = b
	}
	return b
}

// exceedsLimit reports whether more objects have left the bundle than may be deleted without confirmation.
func (i *inventory) exceedsLimit(d fleet.Desired, wanted map[objectKey]bool) bool {
	gone := 0
	for key := range i.entries {
		if !wanted[key] {
			gone++
		}
	}
	return !d.Consent && d.Policy.PruneLimit.Exceeded(gone, len(i.entries))
}

// needsConfirmation reports whether the deletion of an object that has left the bundle has to be confirmed. An object that
// was once held by the limit is held until then, even if later versions do not exceed the limit.
func (i *inventory) needsConfirmation(d fleet.Desired, key objectKey, exceeded bool) bool {
	ref := i.entries[key]
	if slices.Contains(d.Confirmed, ref.String()) {
		return false
	}
	if exceeded {
		i.unconfirmed[key] = true
	}
	return i.unconfirmed[key] || manifest.IsProtected(ref)
}

func (i *inventory) forget(key objectKey) {
	delete(i.entries, key)
	delete(i.keptAt, key)
	delete(i.unconfirmed, key)
}

func sortedKeys[V any](m map[objectKey]V) []objectKey {
	return slices.SortedFunc(maps.Keys(m), compareKeys)
}

func compareKeys(a, b objectKey) int {
	return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.kind, b.kind),
		cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}
