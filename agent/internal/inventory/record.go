package inventory

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Key identifies an object. The version of its API is not part of its identity.
type Key struct {
	Group, Kind, Namespace, Name string
}

// KeyOf returns the identity of the object that ref names.
func KeyOf(ref fleet.ObjectRef) Key {
	return Key{Group: ref.Group, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

// Compare orders keys by kind, then by namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Group, o.Group), cmp.Compare(k.Kind, o.Kind),
		cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Entry is one object that a target has applied, or is about to apply.
type Entry struct {
	fleet.ObjectRef
	// Hash is of the manifest that was last applied; "" before the first time.
	Hash string
	// Live is a hash over the own fields of the object as the API server last returned them, so that a change while no agent
	// was running is noticed. "" when Hash is.
	Live string
	// Fields is a hash over the names of the fields that were last applied, without their values. It shows after a restart
	// that a field was applied that another manager owns now. "" when Hash is, and in inventories of earlier builds.
	Fields string
	// UID is of the object that was last applied; "" before the first time.
	UID string
	// Wave and Depth are its position in the order of the bundle that named it last. Objects are deleted in the reverse order.
	Wave, Depth int
	// Held is why its deletion waits for a confirmation; "" when it is in the source, or nothing holds it.
	Held Hold
	// Keep is the annotation of the last applied manifest that keeps the object from being deleted, as "name: value"; "" when
	// there is none.
	Keep string
	// Finished is how it has finished with the last applied manifest; "" when it has not.
	Finished Finish
}

// Record is the content of the inventory of one target.
type Record struct {
	Target     fleet.TargetID
	Tenant     string
	Deployment string
	fleet.Version
	Digest string // of the last bundle that was applied whole
	// Base is how many objects were in place when everything that had left the source was last decided on. The next change
	// is measured by it until it is decided on itself, over restarts and newer versions.
	Base    int
	Entries map[Key]Entry
}

// Sorted returns the entries in the order of their keys.
func (r Record) Sorted() []Entry {
	keys := slices.SortedFunc(maps.Keys(r.Entries), Key.Compare)
	out := make([]Entry, 0, len(keys))
	for _, key := range keys {
		out = append(out, r.Entries[key])
	}
	return out
}

// clone copies the record so that the copy shares nothing that changes.
func (r Record) clone() Record {
	r.Entries = maps.Clone(r.Entries)
	if r.Entries == nil {
		r.Entries = map[Key]Entry{}
	}
	return r
}

// sameHeader reports whether everything but the entries is equal.
func (r Record) sameHeader(o Record) bool {
	return r.Target == o.Target && r.Tenant == o.Tenant && r.Deployment == o.Deployment &&
		r.Version == o.Version && r.Digest == o.Digest && r.Base == o.Base
}
