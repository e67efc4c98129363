package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Place is the position of an object in the order of apply. Lower places come first; deletion uses the reverse
// order.
type Place struct {
	Wave  int // from its annotation
	Depth int // length of the longest chain of dependencies that ends in it, within its wave
	Rank  int // rank of its kind: see RankOf
}

// Compare returns a negative number if p comes before o.
func (p Place) Compare(o Place) int {
	return cmp.Or(cmp.Compare(p.Wave, o.Wave), cmp.Compare(p.Depth, o.Depth), cmp.Compare(p.Rank, o.Rank))
}

// Order is the order in which objects are applied.
type Order struct {
	// Places are the places of the objects, by index.
	Places []Place
	// Needs lists for each object, by index, the objects that must be ready before it is applied: its
	// dependencies, and the dependencies of its Namespace and of the definition of its kind. Objects of lower
	// waves must be ready too; they are not listed.
	Needs [][]int
}

// OrderError means that there is no valid order: a mistake of a user.
type OrderError struct {
	Object  fleet.ObjectRef
	Problem string
	source  string
}

func (e *OrderError) Error() string { return fmt.Sprintf("%s: %s", e.Object, e.Problem) }

// Arrange computes the order of objects. It fails with [*OrderError] if an annotation is invalid or names an
// object that is not among them, if dependencies are circular, or if an object is in a lower wave than its
// Namespace or the definition of its kind. Objects without a namespace count as in defaultNamespace, as in
// NewSet.
func Arrange(objects []Object, defaultNamespace string) (Order, error) {
	a := arranger{objects: objects, namespace: defaultNamespace, state: make([]visit, len(objects))}
	a.order = Order{Places: make([]Place, len(objects)), Needs: make([][]int, len(objects))}
	ordered := false
	for i, o := range objects {
		wave, err := o.wave()
		if err != nil {
			return Order{}, a.fail(i, "%v", err)
		}
		a.order.Places[i] = Place{Wave: wave, Rank: RankOf(o.Ref)}
		name, _ := o.annotation(AnnotationDependsOn, cliUtilsDependsOn)
		ordered = ordered || name != "" || wave != 0
	}
	if !ordered {
		return a.order, nil // most bundles have no dependencies
	}
	if err := a.link(); err != nil {
		return Order{}, err
	}
	for i := range objects {
		if err := a.visit(i); err != nil {
			return Order{}, err
		}
	}
	return a.order, nil
}

// arranger walks the graph of dependencies.
type arranger struct {
	objects   []Object
	namespace string
	index     map[fleet.ObjectRef]int
	said      [][]int // declared dependencies of each object
	hosts     [][]int // the Namespace and the definition of each object, if they are in the bundle
	state     []visit
	path      []int // being visited
	order     Order
}

type visit int

const (
	unvisited visit = iota
	visiting
	visited
)

func (a *arranger) fail(i int, format string, args ...any) error {
	return &OrderError{Object: a.identity(i), Problem: fmt.Sprintf(format, args...), source: a.objects[i].Source}
}

// identity returns the name of an object for users.
func (a *arranger) identity(i int) fleet.ObjectRef { return effective(a.objects[i].Ref, a.namespace) }

// link resolves the references of the objects.
func (a *arranger) link() error {
	a.index = make(map[fleet.ObjectRef]int, len(a.objects))
	definitions := map[groupKind]int{}
	for i, o := range a.objects {
		a.index[a.identity(i)] = i
		if group, kind, ok := o.Defines(); ok {
			definitions[groupKind{group, kind}] = i
		}
	}
	a.said, a.hosts = make([][]int, len(a.objects)), make([][]int, len(a.objects))
	for i := range a.objects {
		if err := a.linkHosts(i, definitions); err != nil {
			return err
		}
		if err := a.linkSaid(i); err != nil {
			return err
		}
	}
	return nil
}

// linkHosts finds the Namespace and the definition of an object.
func (a *arranger) linkHosts(i int, definitions map[groupKind]int) error {
	id := a.identity(i)
	if host, ok := a.index[fleet.ObjectRef{Kind: "Namespace", Name: id.Namespace}]; ok && id.Namespace != "" {
		a.hosts[i] = append(a.hosts[i], host)
		// An object of an unknown kind without a namespace may be cluster-scoped.
		_, known := IsClusterScoped(id)
		if a.later(host, i) && (known || a.objects[i].Ref.Namespace != "") {
			return a.early(i, host, "the Namespace that it is in")
		}
	}
	if host, ok := definitions[groupKind{id.Group, id.Kind}]; ok {
		a.hosts[i] = append(a.hosts[i], host)
		if a.later(host, i) {
			return a.early(i, host, "the definition of its kind")
		}
	}
	return nil
}

// later reports whether an object is in a later wave than another.
func (a *arranger) later(i, other int) bool {
	return a.order.Places[i].Wave > a.order.Places[other].Wave
}

// early returns an error: an object comes before an object that it requires. The message names both ways to fix
// it.
func (a *arranger) early(i, host int, role string) error {
	wave, hostWave := a.order.Places[i].Wave, a.order.Places[host].Wave
	return a.fail(i, "is in wave %d, and %s, %s, is in wave %d and so comes later; move %s to wave %d or lower, or this to wave %d or higher",
		wave, role, a.identity(host), hostWave, a.identity(host), wave, hostWave)
}

// linkSaid resolves the declared dependencies of an object.
func (a *arranger) linkSaid(i int) error {
	id := a.identity(i)
	references, err := a.objects[i].dependsOn()
	if err != nil {
		return a.fail(i, "%v", err)
	}
	for _, r := range references {
		on, ok := a.find(r.ref, id.Namespace)
		if !ok {
			return a.fail(i, "annotation %s: depends on %q, which is not in the bundle", r.name, r.text)
		}
		if a.later(on, i) {
			return a.fail(i, "is in wave %d and depends on %s, which is in wave %d and so comes later",
				a.order.Places[i].Wave, a.identity(on), a.order.Places[on].Wave)
		}
		a.said[i] = append(a.said[i], on)
	}
	return nil
}

// find resolves a reference. Without a namespace, it uses the namespace of the referring object, and then the
// default as in a manifest.
func (a *arranger) find(ref fleet.ObjectRef, namespace string) (int, bool) {
	if ref.Namespace == "" {
		near := ref
		near.Namespace = namespace
		if i, ok := a.index[effective(near, a.namespace)]; ok {
			return i, true
		}
	}
	i, ok := a.index[effective(ref, a.namespace)]
	return i, ok
}

// visit computes the needs and the depth of an object.
func (a *arranger) visit(i int) error {
	switch a.state[i] {
	case visited:
		return nil
	case visiting:
		return a.cycle(i)
	}
	a.state[i] = visiting
	a.path = append(a.path, i)
	needs := slices.Clone(a.said[i])
	for _, host := range a.hosts[i] {
		if err := a.visit(host); err != nil {
			return err
		}
		needs = append(needs, a.order.Needs[host]...)
	}
	slices.Sort(needs)
	needs = slices.Compact(needs)
	place := &a.order.Places[i]
	for _, on := range needs {
		if err := a.visit(on); err != nil {
			return err
		}
		if there := a.order.Places[on]; there.Wave == place.Wave {
			place.Depth = max(place.Depth, there.Depth+1)
		}
	}
	a.order.Needs[i] = needs
	a.path = a.path[:len(a.path)-1]
	a.state[i] = visited
	return nil
}

func (a *arranger) cycle(i int) error {
	var names []string
	for _, j := range append(a.path[slices.Index(a.path, i):], i) {
		names = append(names, a.identity(j).String())
	}
	const limit = 6
	if len(names) > limit {
		names = append(names[:limit-1], "…", names[len(names)-1])
	}
	return a.fail(i, "depends on itself: %s", strings.Join(names, " needs "))
}

// Defines returns the kind that the object defines; ok is false if it is not a CustomResourceDefinition.
func (o Object) Defines() (group, kind string, ok bool) {
	if o.Ref.Group != "apiextensions.k8s.io" || o.Ref.Kind != "CustomResourceDefinition" {
		return "", "", false
	}
	spec, _ := o.Content["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	group, _ = spec["group"].(string)
	kind, ok = names["kind"].(string)
	return group, kind, ok
}
