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

// Cluster is a cluster in memory, with the inventories that an agent keeps there. It outlives the
// agents that work on it, one at a time: what a new one finds is what the one before has left. It is
// safe for concurrent use.
type Cluster struct {
	// observe is told of everything that an agent does here, in order, under the lock. It must not
	// block nor call back.
	observe func(Event)
	// uid is what agents in it say of where they are.
	uid string

	mu      sync.Mutex
	objects map[objectKey]Object
	books   map[fleet.TargetID]*book
}

// Object is one object in a Cluster.
type Object struct {
	fleet.ObjectRef
	// Target owns it; "" when nobody does, after it was let go of.
	Target fleet.TargetID
	// Deployment is tenant/name of whoever applied it last.
	Deployment string
	Content    map[string]any
}

// EventKind says what an agent did.
type EventKind string

// The kinds of event.
const (
	EventTaken   EventKind = "taken"   // a desired state was accepted, and is being made true
	EventIgnored EventKind = "ignored" // one was refused because a newer one is held
	EventKept    EventKind = "kept"    // an object has left the bundle, and stays because its prune is held
	EventDeleted EventKind = "deleted"
	EventLetGo   EventKind = "let go" // an object stays, and is nobody's
)

// Event is something that an agent did to a Cluster.
type Event struct {
	Kind    EventKind
	Replica string
	// Desired is the state that it was done for. Its Objects belong to everybody: they are read only.
	Target             fleet.TargetID
	Tenant, Deployment string
	State              fleet.Desired
	Desired            *manifest.Set
	// Object is what was kept, deleted or let go of.
	Object Object
}

// book is the inventory of one target: what it may have put into the cluster.
type book struct {
	version fleet.Version
	digest  string
	entries map[objectKey]fleet.ObjectRef
	kept    map[objectKey]fleet.Version // for which version EventKept was told
	waiting map[objectKey]bool          // held by the limit or by HoldPrune, and not confirmed since
}

// objectKey is what an object is; the version of its group is no part of that.
type objectKey struct{ group, kind, namespace, name string }

func keyOf(r fleet.ObjectRef) objectKey { return objectKey{r.Group, r.Kind, r.Namespace, r.Name} }

// NewCluster makes an empty cluster. observe may be nil.
func NewCluster(observe func(Event)) *Cluster {
	if observe == nil {
		observe = func(Event) {}
	}
	return &Cluster{observe: observe, uid: rand.Text(), objects: map[objectKey]Object{}, books: map[fleet.TargetID]*book{}}
}

// Objects returns what there is, in the order of namespaces and names.
func (c *Cluster) Objects() []Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.objects), func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
}

// Targets returns the targets that have an inventory, with the version that each is at.
func (c *Cluster) Targets() map[fleet.TargetID]fleet.Version {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[fleet.TargetID]fleet.Version{}
	for id, b := range c.books {
		out[id] = b.version
	}
	return out
}

// held is what an agent that starts anew finds.
func (c *Cluster) held() []engine.Held {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []engine.Held
	for id, b := range c.books {
		out = append(out, engine.Held{Target: id, Version: b.version, Digest: b.digest})
	}
	return out
}

// bookLocked is the inventory of a target, made when there is none.
func (c *Cluster) bookLocked(id fleet.TargetID) *book {
	b := c.books[id]
	if b == nil {
		b = &book{entries: map[objectKey]fleet.ObjectRef{}, kept: map[objectKey]fleet.Version{}, waiting: map[objectKey]bool{}}
		c.books[id] = b
	}
	return b
}

// over reports whether more has left the bundle than may be deleted unasked.
func (b *book) over(d fleet.Desired, wanted map[objectKey]bool) bool {
	gone := 0
	for key := range b.entries {
		if !wanted[key] {
			gone++
		}
	}
	return !d.Consent && d.Policy.PruneLimit.Exceeded(gone, len(b.entries))
}

// unconfirmed reports whether an object that has left the bundle waits for somebody to confirm that it may
// be deleted. What was among too many once waits until then, whatever leaves later.
func (b *book) unconfirmed(d fleet.Desired, key objectKey, over bool) bool {
	ref := b.entries[key]
	if slices.Contains(d.Confirmed, ref.String()) {
		return false
	}
	if over {
		b.waiting[key] = true
	}
	return b.waiting[key] || manifest.IsProtected(ref)
}

func (b *book) forget(key objectKey) {
	delete(b.entries, key)
	delete(b.kept, key)
	delete(b.waiting, key)
}

func sortedKeys[V any](m map[objectKey]V) []objectKey {
	return slices.SortedFunc(maps.Keys(m), compareKeys)
}

func compareKeys(a, b objectKey) int {
	return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.kind, b.kind),
		cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}
