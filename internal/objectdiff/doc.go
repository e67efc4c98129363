// Package objectdiff says what differs between two sets of Kubernetes objects: object by object and
// field by field, in an order that depends on nothing but the sets. It is pure.
//
// The values of Secrets are never told, nor how long they are: that a value differs is all that can be
// seen. That holds for data and stringData, and for the annotation in which kubectl keeps a copy of an
// object.
package objectdiff

import (
	"cmp"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// Kind is what has happened to an object or a field.
type Kind string

// The kinds of change.
const (
	Added   Kind = "added"
	Removed Kind = "removed"
	Changed Kind = "changed"
)

// Object is one object that differs.
type Object struct {
	Ref    fleet.ObjectRef // as it is in the newer set, or was in the older; with the namespace that counts
	Kind   Kind
	Fields []Field
	More   int // fields that differ as well and were left off
}

// Field is one field that differs.
type Field struct {
	Path string // such as spec.template.spec.containers[web].image
	Kind Kind
	// Old and New are values as text: strings in quotes, long ones cut. They are "" where there is none,
	// and Masked where they are secret.
	Old, New string
}

// Masked stands for a value that is not told.
const Masked = "(hidden)"

// Summary counts objects.
type Summary struct{ Added, Removed, Changed, Unchanged int }

// Limits of a comparison, so that it stays readable and small.
const (
	maxFields = 200  // of one object
	maxTotal  = 5000 // of all
	maxText   = 200  // characters of one value
)

// Compare returns the objects that differ, in the order of their identity. An object that names no
// namespace counts as one in namespace.
func Compare(from, to []manifest.Object, namespace string) ([]Object, Summary) {
	older, newer := byIdentity(from, namespace), byIdentity(to, namespace)
	var out []Object
	var sum Summary
	left := maxTotal
	for _, id := range identities(older, newer) {
		was, hadOld := older[id]
		is, hasNew := newer[id]
		c := collector{secret: id.Group == "" && id.Kind == "Secret", left: min(maxFields, left)}
		o := Object{Ref: id, Kind: Changed}
		switch {
		case !hadOld:
			o.Kind, o.Ref.Version = Added, is.Ref.Version
			c.compare(nil, any(is.Content), path{})
			sum.Added++
		case !hasNew:
			o.Kind, o.Ref.Version = Removed, was.Ref.Version
			c.compare(any(was.Content), nil, path{})
			sum.Removed++
		default:
			o.Ref.Version = is.Ref.Version
			c.compare(any(was.Content), any(is.Content), path{})
			if len(c.fields) == 0 && c.more == 0 {
				sum.Unchanged++
				continue
			}
			sum.Changed++
		}
		o.Fields, o.More = c.fields, c.more
		left -= len(c.fields)
		out = append(out, o)
	}
	return out, sum
}

func byIdentity(objects []manifest.Object, namespace string) map[fleet.ObjectRef]manifest.Object {
	out := make(map[fleet.ObjectRef]manifest.Object, len(objects))
	for _, o := range objects {
		id := o.Ref
		id.Version = ""
		if scoped, known := manifest.IsClusterScoped(id); id.Namespace == "" && !(known && scoped) {
			id.Namespace = namespace
		}
		out[id] = o
	}
	return out
}

func identities(sets ...map[fleet.ObjectRef]manifest.Object) []fleet.ObjectRef {
	var out []fleet.ObjectRef
	for _, set := range sets {
		for id := range set {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, func(a, b fleet.ObjectRef) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(out)
}
