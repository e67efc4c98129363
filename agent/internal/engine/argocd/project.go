package argocd

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
)

// projectNeed is what one target needs in its AppProject.
type projectNeed struct {
	name, tenant string
	limits       fleet.Limits
	repository   string
	namespaces   []string
	server       string                 // URL of the API server
	environment  *fleet.PushEnvironment // nil for the cluster of the agent
}

// projectWrites is held while a project is written.
type projectWrites struct {
	sync.Mutex
	written map[string]map[string]any // specs by name, as this process wrote or found them
}

// ensureProject makes an AppProject allow exactly what the Applications in it have, and what the next write of one of them
// needs. It is written before the Application that needs more, and narrowed after the Application that needs less.
func (e *Engine) ensureProject(ctx context.Context, need projectNeed) (restored bool, err error) {
	e.writingProjects.Lock()
	defer e.writingProjects.Unlock()
	repositories, namespaces := []string{need.repository}, need.namespaces
	for _, a := range e.cache.inProject(need.name) {
		url, _, _ := unstructured.NestedString(a.spec, "source", "repoURL")
		repositories = append(repositories, url)
		namespaces = append(slices.Clone(namespaces), a.list(annotationNamespaces)...)
	}
	spec := e.projectSpec(need, union(repositories), union(namespaces))
	live := e.cache.project(need.name)
	if live == nil {
		return false, e.createProject(ctx, need, spec)
	}
	have, _, _ := unstructured.NestedMap(live.Object, "spec")
	if sameSpec(have, spec) && live.GetLabels()[labelManagedBy] == managedBy {
		e.writingProjects.written[need.name] = spec
		return false, nil
	}
	// A hand edit: nothing else is desired than this process wrote last.
	restored = e.writingProjects.written[need.name] != nil && sameSpec(e.writingProjects.written[need.name], spec)
	next := live.DeepCopy()
	next.Object["spec"] = spec
	setLabel(next, labelManagedBy, managedBy)
	written, err := e.projects.Update(ctx, next, metav1.UpdateOptions{FieldManager: managedBy})
	if err != nil {
		return false, fmt.Errorf("writing AppProject %s: %w", need.name, err)
	}
	e.cache.stored(1, written)
	e.writingProjects.written[need.name] = spec
	return restored, nil
}

func (e *Engine) createProject(ctx context.Context, need projectNeed, spec map[string]any) error {
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{
			"name": need.name, "namespace": e.engineNamespace,
			"labels":      map[string]any{labelAgent: string(e.config().agent), labelManagedBy: managedBy},
			"annotations": map[string]any{annotationTenant: need.tenant},
		},
		"spec": spec,
	}}
	written, err := e.projects.Create(ctx, obj, metav1.CreateOptions{FieldManager: managedBy})
	if apierrors.IsAlreadyExists(err) {
		return &nameInUseError{"AppProject", need.name}
	}
	if err != nil {
		return fmt.Errorf("creating AppProject %s: %w", need.name, err)
	}
	e.cache.stored(1, written)
	return nil
}

// nameInUseError means that an object that is not of this agent has a name that the engine needs.
type nameInUseError struct{ kind, name string }

func (n *nameInUseError) Error() string {
	return fmt.Sprintf("%s %s exists and is not managed by this agent: it was not changed", n.kind, n.name)
}

// projectSpec limits the Applications of a project. Nothing in it comes from the source.
func (e *Engine) projectSpec(need projectNeed, repositories, namespaces []string) map[string]any {
	s := e.config()
	destinations := make([]any, 0, len(namespaces))
	for _, ns := range namespaces {
		destinations = append(destinations, destination(need.server, ns))
	}
	spec := map[string]any{
		"description":  "deployments of tenant " + need.tenant + ", managed by Kedge",
		"sourceRepos":  anyList(repositories),
		"destinations": destinations,
	}
	clusterScoped := s.scope != fleet.ScopeNamespaced && len(need.limits.Namespaces) == 0 && (s.policy.ClusterScoped == nil || *s.policy.ClusterScoped)
	if env := need.environment; env != nil {
		// Scope and policy of the agent are about its own cluster.
		s = settings{kinds: s.kinds}
		clusterScoped = len(need.limits.Namespaces) == 0 && (len(env.Namespaces) == 0 || env.ClusterResources)
		spec["permitOnlyProjectScopedClusters"] = true
	}
	kinds := kindItems(firstList(need.limits.Kinds, onlyKinds(fleet.KindFilter(s.policy.Kinds)), onlyKinds(s.kinds)))
	switch {
	case !clusterScoped: // an absent list allows none
	case len(kinds) > 0:
		spec["clusterResourceWhitelist"] = kinds
	default:
		spec["clusterResourceWhitelist"] = []any{map[string]any{"group": "*", "kind": "*"}}
	}
	if len(kinds) > 0 {
		spec["namespaceResourceWhitelist"] = kinds
	}
	excluded := kindItems(union(excludedKinds(fleet.KindFilter(s.policy.Kinds)), excludedKinds(s.kinds)))
	if len(excluded) > 0 {
		spec["namespaceResourceBlacklist"], spec["clusterResourceBlacklist"] = excluded, excluded
	}
	return spec
}

// firstList returns the first list that is not empty. Argo CD has one list of allowed kinds: the agent itself applies the others.
func firstList(lists ...[]string) []string {
	for _, list := range lists {
		if len(list) > 0 {
			return list
		}
	}
	return nil
}

// onlyKinds returns the kinds of a filter that excludes all others; nil for any other filter.
func onlyKinds(f fleet.KindFilter) []string {
	if slices.Contains(f.Exclude, "*") {
		return f.Include
	}
	return nil
}

// excludedKinds returns the exclusions of a filter that no inclusion overlaps. Inclusions are exceptions from exclusions, which
// Argo CD does not have. The agent itself refuses what Argo CD cannot express.
func excludedKinds(f fleet.KindFilter) []string {
	return slices.DeleteFunc(slices.Clone(f.Exclude), func(rule string) bool {
		return slices.ContainsFunc(f.Include, func(other string) bool { return overlap(rule, other) })
	})
}

// overlap reports whether two rules may match the same kind.
func overlap(a, b string) bool {
	x, y := kindItem(a), kindItem(b)
	same := func(field string) bool { return x[field] == y[field] || x[field] == "*" || y[field] == "*" }
	return same("group") && same("kind")
}

func kindItems(patterns []string) []any {
	out := make([]any, 0, len(patterns))
	for _, pattern := range patterns {
		out = append(out, kindItem(pattern))
	}
	return out
}

// releaseProject narrows or deletes an AppProject after an Application has left it.
func (e *Engine) releaseProject(ctx context.Context, name string) error {
	e.writingProjects.Lock()
	defer e.writingProjects.Unlock()
	live := e.cache.project(name)
	if live == nil {
		return nil
	}
	used, err := e.usedProjects(ctx)
	if err != nil {
		return err
	}
	if used[name] {
		e.wakeAll() // ensureProject of the targets in it narrows it
		return nil
	}
	return e.deleteProject(ctx, live)
}

// sweepProjects deletes the projects of this agent that no Application uses: a crash came between the deletions of both. It
// runs before any target, because a project is written before its first Application.
func (e *Engine) sweepProjects(ctx context.Context) {
	projects, err := e.projects.List(ctx, metav1.ListOptions{LabelSelector: e.selector()})
	if err != nil || len(projects.Items) == 0 {
		return
	}
	used, err := e.usedProjects(ctx)
	for i := range projects.Items {
		if err == nil && !used[projects.Items[i].GetName()] {
			err = e.deleteProject(ctx, &projects.Items[i])
		}
	}
	if err != nil {
		e.log.Warn("projects that nothing uses stay", obs.Err(err))
	}
}

// usedProjects returns the projects that Applications have, also those of others.
func (e *Engine) usedProjects(ctx context.Context) (map[string]bool, error) {
	all, err := e.applications.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing Applications: %w", err)
	}
	used := map[string]bool{}
	for i := range all.Items {
		project, _, _ := unstructured.NestedString(all.Items[i].Object, "spec", "project")
		used[project] = true
	}
	return used, nil
}

// deleteProject deletes a project of this agent, if it is still the one that was read.
func (e *Engine) deleteProject(ctx context.Context, live *unstructured.Unstructured) error {
	if live.GetDeletionTimestamp() != nil || live.GetLabels()[labelAgent] != string(e.config().agent) {
		return nil
	}
	err := e.projects.Delete(ctx, live.GetName(), onlyThis(live))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting AppProject %s: %w", live.GetName(), err)
	}
	e.cache.removedProject(live) // the next target that needs it does not wait for the watch
	return nil
}

func setLabel(obj *unstructured.Unstructured, key, value string) {
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	obj.SetLabels(labels)
}

func setAnnotations(obj *unstructured.Unstructured, values map[string]string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	for key, value := range values {
		if value == "" {
			delete(annotations, key)
		} else {
			annotations[key] = value
		}
	}
	obj.SetAnnotations(annotations)
}

// onlyThis returns the precondition that an object is still the one that was read.
func onlyThis(obj *unstructured.Unstructured) metav1.DeleteOptions {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	// No object has an Application as its owner in the sense of Kubernetes, so nothing is deleted with it.
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
}
