package builtin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/fieldset"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// Who deletes a Namespace deletes everything in it, and who deletes a CustomResourceDefinition every object of
// its kind. That it was confirmed by name says nothing of those, so that the cluster is asked for them just before: what
// other agents hold, and what other deployments hold back, no claim of this engine tells.

func isNamespace(ref fleet.ObjectRef) bool { return ref.Group == "" && ref.Kind == "Namespace" }

func isDefinition(ref fleet.ObjectRef) bool {
	return ref.Group == "apiextensions.k8s.io" && ref.Kind == "CustomResourceDefinition"
}

// holdsOthers reports whether other objects are deleted along with one.
func holdsOthers(ref fleet.ObjectRef) bool { return isNamespace(ref) || isDefinition(ref) }

// lookError says why it could not be found out what would be deleted along with an object.
type lookError struct{ err error }

func (e *lookError) Error() string {
	return "looking for what would be deleted with it: " + e.err.Error()
}
func (e *lookError) Unwrap() error { return e.err }

// occupied returns why deleting an object would take others with it that nobody has asked to delete, or "".
func (c *cluster) occupied(ctx context.Context, m mapping, ref fleet.ObjectRef) (string, error) {
	if isNamespace(ref) {
		return c.managedIn(ctx, ref.Name)
	}
	return c.definedBy(ctx, m, ref)
}

// managedIn names an object of any deployment in a namespace. What nobody manages goes with its namespace.
func (c *cluster) managedIn(ctx context.Context, namespace string) (string, error) {
	resources, err := c.mapper.namespaced(ctx)
	if err != nil {
		return "", err
	}
	for _, resource := range resources {
		found, err := c.first(ctx, resource, namespace, LabelTarget, isApplied)
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			continue // it went, or cannot be listed at all
		}
		if err != nil {
			return "", err
		}
		if found != nil {
			return fmt.Sprintf("%s %q of deployment %s is still in it, and would be deleted with it",
				resource.GroupResource(), found.Name, found.Annotations[AnnotationDeployment]), nil
		}
	}
	return "", nil
}

// isApplied reports whether an agent has applied an object. Controllers copy labels to what they make, which is nobody's.
func isApplied(found *metav1.PartialObjectMetadata) bool {
	return metav1.GetControllerOf(found) == nil && slices.ContainsFunc(found.ManagedFields, fieldset.IsOwn)
}

// first returns the first object of a kind that is of interest; nil when there is none.
func (c *cluster) first(ctx context.Context, resource schema.GroupVersionResource, namespace, selector string, of func(*metav1.PartialObjectMetadata) bool) (*metav1.PartialObjectMetadata, error) {
	options := metav1.ListOptions{LabelSelector: selector, Limit: 100}
	for {
		list, err := c.page(ctx, resource, namespace, options)
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", resource.GroupResource(), err)
		}
		if i := slices.IndexFunc(list.Items, func(found metav1.PartialObjectMetadata) bool { return of(&found) }); i >= 0 {
			return &list.Items[i], nil
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil, nil
		}
	}
}

func (c *cluster) page(ctx context.Context, resource schema.GroupVersionResource, namespace string, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.request)
	defer cancel()
	return c.own.Resource(resource).Namespace(namespace).List(ctx, options)
}

// definedBy names an object of a custom kind, whoever has made it.
func (c *cluster) definedBy(ctx context.Context, m mapping, ref fleet.ObjectRef) (string, error) {
	definition, err := c.read(ctx, m, ref)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if !established(definition) {
		return "", nil // nothing of it was ever accepted
	}
	resource, served := definedResource(definition)
	if !served {
		return "none of its versions is served, so that nobody can tell what would be deleted with it: serve one, or delete it by hand", nil
	}
	found, err := c.first(ctx, resource, "", "", func(*metav1.PartialObjectMetadata) bool { return true })
	if err != nil {
		return "", err
	}
	if found == nil {
		return "", nil
	}
	return fmt.Sprintf("%s %q still exists, and would be deleted with it", resource.GroupResource(), strings.TrimPrefix(found.Namespace+"/"+found.Name, "/")), nil
}

// established reports whether a CustomResourceDefinition has ever been served.
func established(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Established" && condition["status"] == "True"
	})
}

// definedResource is where the objects of a CustomResourceDefinition are found, if they are.
func definedResource(definition *unstructured.Unstructured) (resource schema.GroupVersionResource, served bool) {
	resource.Group, _, _ = unstructured.NestedString(definition.Object, "spec", "group")
	resource.Resource, _, _ = unstructured.NestedString(definition.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	i := slices.IndexFunc(versions, func(v any) bool {
		version, _ := v.(map[string]any)
		serves, _ := version["served"].(bool)
		return serves
	})
	if i < 0 {
		return resource, false
	}
	resource.Version, _ = versions[i].(map[string]any)["name"].(string)
	return resource, true
}
