package kube

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

// ErrUnknownKind means: the API server answered and does not serve the kind.
var ErrUnknownKind = errors.New("the cluster does not know this kind")

// Mapping is the resource of a kind.
type Mapping struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
}

// Mapper finds the resources of kinds. It asks for one group and version at a time, and only for those in use, so that
// an API group whose server is down affects no other. Safe for concurrent use.
type Mapper struct {
	get func(ctx context.Context, path string) ([]byte, error)

	mu    sync.Mutex
	known map[schema.GroupVersion]map[string]Mapping
}

func newMapper(get func(ctx context.Context, path string) ([]byte, error)) *Mapper {
	return &Mapper{get: get, known: map[schema.GroupVersion]map[string]Mapping{}}
}

// Cached returns the mapping of a kind from the cache.
func (m *Mapper) Cached(gvk schema.GroupVersionKind) (Mapping, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.known[gvk.GroupVersion()][gvk.Kind]
	return found, ok
}

// Find returns the mapping of a kind. It asks the API server when the cache does not have it. The error is ErrUnknownKind
// when the API server does not serve the kind, and another error when the question failed.
func (m *Mapper) Find(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, error) {
	if found, ok := m.Cached(gvk); ok {
		return found, nil
	}
	kinds, err := m.ask(ctx, gvk.GroupVersion())
	if err != nil {
		return Mapping{}, err
	}
	m.mu.Lock()
	m.known[gvk.GroupVersion()] = kinds
	m.mu.Unlock()
	if found, ok := kinds[gvk.Kind]; ok {
		return found, nil
	}
	return Mapping{}, ErrUnknownKind
}

// findAny is Find for an object that is removed: when its version is no longer served, it returns any other version of
// the group.
func (m *Mapper) findAny(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, error) {
	found, err := m.Find(ctx, gvk)
	if !errors.Is(err, ErrUnknownKind) || gvk.Group == "" {
		return found, err
	}
	versions, err := m.versions(ctx, gvk.Group)
	if errors.Is(err, ErrUnknownKind) {
		return Mapping{}, m.absent(ctx, gvk.Group)
	}
	if err != nil {
		return Mapping{}, err
	}
	for _, version := range versions {
		found, err := m.Find(ctx, schema.GroupVersionKind{Group: gvk.Group, Version: version, Kind: gvk.Kind})
		if !errors.Is(err, ErrUnknownKind) {
			return found, err
		}
	}
	return Mapping{}, ErrUnknownKind
}

// confirm is findAny without the cache.
func (m *Mapper) confirm(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, error) {
	m.Forget(gvk.Group)
	return m.findAny(ctx, gvk)
}

// namespaced lists every namespaced kind of the cluster, each in one version, without the cache. An incomplete answer is
// an error.
func (m *Mapper) namespaced(ctx context.Context) ([]schema.GroupVersionResource, error) {
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
			if found.Namespaced && !seen[found.Resource.GroupResource()] {
				seen[found.Resource.GroupResource()] = true
				out = append(out, found.Resource)
			}
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

// Forget removes a group from the cache.
func (m *Mapper) Forget(group string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for gv := range m.known {
		if gv.Group == group {
			delete(m.known, gv)
		}
	}
}

func (m *Mapper) ask(ctx context.Context, gv schema.GroupVersion) (map[string]Mapping, error) {
	root := path.Join("/apis", gv.Group, gv.Version)
	if gv.Group == "" {
		root = path.Join("/api", gv.Version)
	}
	var list metav1.APIResourceList
	err := m.fetch(ctx, root, &list)
	if root == "/api/v1" && errors.Is(err, ErrUnknownKind) {
		// Every API server serves it, so something else answered.
		return nil, errors.New("asking the cluster for its kinds in /api/v1: not found, which no API server says")
	}
	if err != nil {
		return nil, err
	}
	kinds := map[string]Mapping{}
	for _, r := range list.APIResources {
		// Subresources share the kind of others; what cannot be patched cannot be managed.
		if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "patch") {
			continue
		}
		kinds[r.Kind] = Mapping{Resource: gv.WithResource(r.Name), Namespaced: r.Namespaced}
	}
	return kinds, nil
}

func (m *Mapper) versions(ctx context.Context, group string) ([]string, error) {
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

// absent returns ErrUnknownKind if the list of all groups of the API server lacks this one. A group that is only not
// found may be temporarily unavailable.
func (m *Mapper) absent(ctx context.Context, group string) error {
	groups, err := m.groups(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(groups, func(g metav1.APIGroup) bool { return g.Name == group }) {
		return fmt.Errorf("asking the cluster for its kinds in %s: the group is listed, and not found", group)
	}
	return ErrUnknownKind
}

// groups asks for all groups of the cluster but the one without a name.
func (m *Mapper) groups(ctx context.Context) ([]metav1.APIGroup, error) {
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

func (m *Mapper) fetch(ctx context.Context, root string, into any) error {
	body, err := m.get(ctx, root)
	if apierrors.IsNotFound(err) {
		return ErrUnknownKind
	}
	if err != nil {
		return fmt.Errorf("asking the cluster for its kinds in %s: %w", root, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("reading the kinds in %s: %w", root, err)
	}
	return nil
}
