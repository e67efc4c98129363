package gateway

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// objectKey identifies an object regardless of its API version.
type objectKey struct{ group, kind, namespace, name string }

func keyOf(r fleet.ObjectRef) objectKey { return objectKey{r.Group, r.Kind, r.Namespace, r.Name} }

// pendingReport is the newest status of one target with all object changes since the last write.
type pendingReport struct {
	target   fleet.TargetID
	observed fleet.Observed
	full     bool
	objects  map[objectKey]fleet.ObjectStatus
	gone     map[objectKey]fleet.ObjectRef // empty while full is set
}

func newPending(r store.Report) *pendingReport {
	p := &pendingReport{target: r.Target}
	p.add(r)
	return p
}

// add merges a newer report into p.
func (p *pendingReport) add(r store.Report) {
	p.observed = r.Observed
	if r.Full || p.objects == nil {
		p.full = p.full || r.Full
		p.objects = make(map[objectKey]fleet.ObjectStatus, len(r.Objects))
		p.gone = map[objectKey]fleet.ObjectRef{}
	}
	for _, o := range r.Objects {
		p.objects[keyOf(o.ObjectRef)] = o
		delete(p.gone, keyOf(o.ObjectRef))
	}
	for _, ref := range r.Gone {
		delete(p.objects, keyOf(ref))
		if !p.full {
			p.gone[keyOf(ref)] = ref
		}
	}
}

// objectCount returns the number of objects in p.
func (p *pendingReport) objectCount() int { return len(p.objects) + len(p.gone) }

// report returns p in the order in which users read objects.
func (p *pendingReport) report() store.Report {
	return store.Report{
		Target: p.target, Observed: p.observed, Full: p.full,
		Objects: slices.SortedFunc(maps.Values(p.objects), func(a, b fleet.ObjectStatus) int { return compareRefs(a.ObjectRef, b.ObjectRef) }),
		Gone:    slices.SortedFunc(maps.Values(p.gone), compareRefs),
	}
}

func compareRefs(a, b fleet.ObjectRef) int {
	return cmp.Or(
		cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
	)
}
