// Package objectdiff computes the differences between two sets of Kubernetes objects, by object and by field,
// in a deterministic order. It is pure.
//
// It never reveals the values of Secrets or their length, only that a value differs. This applies to data and
// stringData, and to the annotation in which kubectl keeps a copy of an object.
package objectdiff

import (
	"cmp"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// Kind is the kind of a change.
type Kind string

// The kinds of change.
const (
	Added   Kind = "added"
	Removed Kind = "removed"
	Changed Kind = "changed"
)

// Object is one object that differs.
type Object struct {
	Ref    fleet.ObjectRef // from the newer set, or from the older one; with the effective namespace
	Kind   Kind
	Fields []Field
	More   int // number of differing fields that are not listed
}

// Field is one field that differs.
type Field struct {
	Path string // such as spec.template.spec.containers[web].image
	Kind Kind
	// Old and New are values as text: strings in quotes, long values cut. They are "" for missing values, and
	// Masked for secret ones.
	Old, New string
}

// Masked replaces a secret value.
const Masked = "(hidden)"

// Summary counts objects.
type Summary struct{ Added, Removed, Changed, Unchanged int }

// Limits of a comparison, so that it stays readable and small.
const (
	maxFields = 200  // of one object
	maxTotal  = 5000 // of all
	maxText   = 200  // characters of one value
)

// Compare returns the objects that differ, sorted by identity. An object without a namespace counts as in
// namespace.
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
