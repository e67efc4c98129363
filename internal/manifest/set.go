package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Set is an immutable set of objects, sorted by identity: group, kind, namespace, name.
type Set struct {
	objects          []Object
	defaultNamespace string
}

// NewSet creates a set. An object without a namespace counts as in defaultNamespace, unless its kind is known
// to be cluster-scoped; the object itself does not change, because only a cluster knows the scope of every
// kind. Two objects with one identity fail with [*DuplicateError]. Versions of a group are one identity: the
// API server stores one object. Invalid annotations, or annotations without a valid order, fail with [*Error].
func NewSet(objects []Object, defaultNamespace string) (*Set, error) {
	sorted := slices.Clone(objects)
	slices.SortStableFunc(sorted, func(a, b Object) int { return compareRefs(a.Ref, b.Ref) })
	seen := make(map[fleet.ObjectRef]int, len(sorted))
	for i, o := range sorted {
		id := effective(o.Ref, defaultNamespace)
		if first, ok := seen[id]; ok {
			id.Version = o.Ref.Version
			return nil, &DuplicateError{Object: id, First: sorted[first].Source, Second: o.Source}
		}
		seen[id] = i
		if _, err := o.Drift(); err != nil {
			return nil, &Error{Source: o.Source, Problem: fmt.Sprintf("%s: %v", id, err)}
		}
	}
	var problem *OrderError
	if _, err := Arrange(sorted, defaultNamespace); errors.As(err, &problem) {
		return nil, &Error{Source: problem.source, Problem: problem.Error()}
	}
	return &Set{objects: sorted, defaultNamespace: defaultNamespace}, nil
}

// effective returns the identity for comparisons: without version, with the implied namespace.
func effective(ref fleet.ObjectRef, defaultNamespace string) fleet.ObjectRef {
	ref.Version = ""
	clusterScoped, known := IsClusterScoped(ref)
	switch {
	case known && clusterScoped:
		ref.Namespace = ""
	case ref.Namespace == "":
		ref.Namespace = defaultNamespace
	}
	return ref
}

// compareRefs orders by identity, without the version.
func compareRefs(a, b fleet.ObjectRef) int {
	return cmp.Or(
		cmp.Compare(a.Group, b.Group),
		cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

// Objects returns the objects in order. You may change the slice, but not the contents.
func (s *Set) Objects() []Object { return slices.Clone(s.objects) }

// Len returns the number of objects.
func (s *Set) Len() int { return len(s.objects) }

// Get finds an object by group, kind, namespace, and name; the version does not matter. An empty namespace and
// the default namespace of NewSet find the same object.
func (s *Set) Get(ref fleet.ObjectRef) (Object, bool) {
	candidates := []string{ref.Namespace}
	switch ref.Namespace {
	case "":
		candidates = append(candidates, s.defaultNamespace)
	case s.defaultNamespace:
		candidates = append(candidates, "")
	}
	for _, namespace := range candidates {
		ref.Namespace = namespace
		i, found := slices.BinarySearchFunc(s.objects, ref, func(o Object, r fleet.ObjectRef) int {
			return compareRefs(o.Ref, r)
		})
		if found {
			return s.objects[i], true
		}
	}
	return Object{}, false
}
