package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// errUnknownKind says that the API server answered, and serves no such kind.
var errUnknownKind = errors.New("the cluster does not know this kind")

// mapping is how objects of one kind are reached.
type mapping struct {
	resource   schema.GroupVersionResource
	namespaced bool
}

// mapper finds kinds. It asks for one group and version at a time, and only for those in use, so
// that an API group whose server is down harms nobody else. Safe for concurrent use.
type mapper struct {
	get func(ctx context.Context, path string) ([]byte, error)

	mu    sync.Mutex
	known map[schema.GroupVersion]map[string]mapping
}

func newMapper(get func(ctx context.Context, path string) ([]byte, error)) *mapper {
	return &mapper{get: get, known: map[schema.GroupVersion]map[string]mapping{}}
}

// cached returns what is known of a kind without asking.
func (m *mapper) cached(gvk schema.GroupVersionKind) (mapping, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.known[gvk.GroupVersion()][gvk.Kind]
	return found, ok
}

// find returns how to reach a kind, asking when it is not known. The error is errUnknownKind when
// the API server does not serve it, and anything else when that could not be found out.
func (m *mapper) find(ctx context.Context, gvk schema.GroupVersionKind) (mapping, error) {
	if found, ok := m.cached(gvk); ok {
		return found, nil
	}
	kinds, err := m.ask(ctx, gvk.GroupVersion())
	if err != nil {
		return mapping{}, err
	}
	m.mu.Lock()
	m.known[gvk.GroupVersion()] = kinds
	m.mu.Unlock()
	if found, ok := kinds[gvk.Kind]; ok {
		return found, nil
	}
	return mapping{}, errUnknownKind
}

// findAny is find for an object that is to go: when its version is served no longer, any other
// version of its group will do.
func (m *mapper) findAny(ctx context.Context, gvk schema.GroupVersionKind) (mapping, error) {
	found, err := m.find(ctx, gvk)
	if !errors.Is(err, errUnknownKind) || gvk.Group == "" {
		return found, err
	}
	versions, err := m.versions(ctx, gvk.Group)
	if errors.Is(err, errUnknownKind) {
		return mapping{}, m.absent(ctx, gvk.Group)
	}
	if err != nil {
		return mapping{}, err
	}
	for _, version := range versions {
		found, err := m.find(ctx, schema.GroupVersionKind{Group: gvk.Group, Version: version, Kind: gvk.Kind})
		if !errors.Is(err, errUnknownKind) {
			return found, err
		}
	}
	return mapping{}, errUnknownKind
}

// confirm is findAny that believes nothing it knows: it asks the cluster anew.
func (m *mapper) confirm(ctx context.Context, gvk schema.GroupVersionKind) (mapping, error) {
	m.forget(gvk.Group)
	return m.findAny(ctx, gvk)
}

// namespaced asks anew for every kind of the cluster that lives in namespaces, each in one version. If that cannot be found
// out whole, it is an error.
func (m *mapper) namespaced(ctx context.Context) ([]schema.GroupVersionResource, error) {
	groups, err := m.groups(ctx)
	if err != nil {
		return nil, err
	}
	versions := []schema.GroupVersion{{Version: "v1"}}
	for _, group := range groups {
		for _, v := range group.Versions {
			versions = append(versions, schema.GroupVersion{Group: group.Name, Version: v.Version})
		}
	}
	var out []schema.GroupVersionResource
	seen := map[schema.GroupResource]bool{}
	for _, gv := range versions {
		kinds, err := m.ask(ctx, gv)
		if err != nil {
			return nil, err
		}
		for _, found := range kinds {
			if found.namespaced && !seen[found.resource.GroupResource()] {
				seen[found.resource.GroupResource()] = true
				out = append(out, found.resource)
			}
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

// forget makes the next find of a kind in group ask again.
func (m *mapper) forget(group string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for gv := range m.known {
		if gv.Group == group {
			delete(m.known, gv)
		}
	}
}

func (m *mapper) ask(ctx context.Context, gv schema.GroupVersion) (map[string]mapping, error) {
	root := path.Join("/apis", gv.Group, gv.Version)
	if gv.Group == "" {
		root = path.Join("/api", gv.Version)
	}
	var list metav1.APIResourceList
	err := m.fetch(ctx, root, &list)
	if root == "/api/v1" && errors.Is(err, errUnknownKind) {
		// Every API server has it, so that it was not one that answered.
		return nil, errors.New("asking the cluster for its kinds in /api/v1: not found, which no API server says")
	}
	if err != nil {
		return nil, err
	}
	kinds := map[string]mapping{}
	for _, r := range list.APIResources {
		// Subresources share the kind of others; what cannot be patched cannot be managed.
		if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "patch") {
			continue
		}
		kinds[r.Kind] = mapping{resource: gv.WithResource(r.Name), namespaced: r.Namespaced}
	}
	return kinds, nil
}

func (m *mapper) versions(ctx context.Context, group string) ([]string, error) {
	var found metav1.APIGroup
	if err := m.fetch(ctx, path.Join("/apis", group), &found); err != nil {
		return nil, err
	}
	versions := make([]string, 0, len(found.Versions))
	for _, v := range found.Versions {
		versions = append(versions, v.Version)
	}
	return versions, nil
}

// absent returns errUnknownKind if the API server, when it lists all of its groups, leaves this one
// out. A group that is merely not found may be one that is not served yet or for the moment.
func (m *mapper) absent(ctx context.Context, group string) error {
	groups, err := m.groups(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(groups, func(g metav1.APIGroup) bool { return g.Name == group }) {
		return fmt.Errorf("asking the cluster for its kinds in %s: the group is listed, and not found", group)
	}
	return errUnknownKind
}

// groups asks for all groups of the cluster but the one without a name.
func (m *mapper) groups(ctx context.Context) ([]metav1.APIGroup, error) {
	body, err := m.get(ctx, "/apis")
	if err != nil {
		return nil, fmt.Errorf("asking the cluster for its groups: %w", err)
	}
	var all metav1.APIGroupList
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("reading the groups of the cluster: %w", err)
	}
	return all.Groups, nil
}

func (m *mapper) fetch(ctx context.Context, root string, into any) error {
	body, err := m.get(ctx, root)
	if apierrors.IsNotFound(err) {
		return errUnknownKind
	}
	if err != nil {
		return fmt.Errorf("asking the cluster for its kinds in %s: %w", root, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("reading the kinds in %s: %w", root, err)
	}
	return nil
}
