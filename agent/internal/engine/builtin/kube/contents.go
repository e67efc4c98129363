package kube

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

// Deleting a Namespace deletes everything in it, and deleting a CustomResourceDefinition deletes every object of its
// kind. A confirmation by name does not cover those objects, so the cluster is asked for them right before the deletion.
// The claims of this engine do not know the objects of other agents.

// IsNamespace reports whether an object is a Namespace.
func IsNamespace(ref fleet.ObjectRef) bool { return ref.Group == "" && ref.Kind == "Namespace" }

func isDefinition(ref fleet.ObjectRef) bool {
	return ref.Group == "apiextensions.k8s.io" && ref.Kind == "CustomResourceDefinition"
}

// containsOthers reports whether deleting an object deletes other objects.
func containsOthers(ref fleet.ObjectRef) bool { return IsNamespace(ref) || isDefinition(ref) }

// ContentsError is the error of a check for objects that a deletion would delete as well.
type ContentsError struct{ err error }

func (e *ContentsError) Error() string {
	return "looking for what would be deleted with it: " + e.err.Error()
}

// Unwrap returns the cause.
func (e *ContentsError) Unwrap() error { return e.err }

// occupied returns which other object a deletion would delete as well; zero when there is none.
func (c *Client) occupied(ctx context.Context, m Mapping, ref fleet.ObjectRef) (fleet.Cause, error) {
	if IsNamespace(ref) {
		return c.managedIn(ctx, ref.Name)
	}
	return c.definedBy(ctx, m, ref)
}

func notEmpty(format string, args ...any) fleet.Cause {
	return fleet.Cause{Reason: fleet.ReasonNotEmpty, Message: fmt.Sprintf(format, args...)}
}

// managedIn names an object of any deployment in a namespace. Objects that nobody manages are deleted with it.
func (c *Client) managedIn(ctx context.Context, namespace string) (fleet.Cause, error) {
	resources, err := c.Mapper.namespaced(ctx)
	if err != nil {
		return fleet.Cause{}, err
	}
	for _, resource := range resources {
		found, err := c.first(ctx, resource, namespace, LabelTarget, isApplied)
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			continue // the kind is gone, or cannot be listed
		}
		if err != nil {
			return fleet.Cause{}, err
		}
		if found != nil {
			return notEmpty("%s %q of deployment %s is still in it, and would be deleted with it",
				resource.GroupResource(), found.Name, found.Annotations[AnnotationDeployment]), nil
		}
	}
	return fleet.Cause{}, nil
}

// isApplied reports whether an agent applied an object. Controllers copy labels to the objects that they create; those
// do not count.
func isApplied(found *metav1.PartialObjectMetadata) bool {
	return metav1.GetControllerOf(found) == nil && slices.ContainsFunc(found.ManagedFields, fieldset.IsOwn)
}

// first returns the first object of a kind that is of interest; nil when there is none.
func (c *Client) first(ctx context.Context, resource schema.GroupVersionResource, namespace, selector string, of func(*metav1.PartialObjectMetadata) bool) (*metav1.PartialObjectMetadata, error) {
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

func (c *Client) page(ctx context.Context, resource schema.GroupVersionResource, namespace string, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.Request)
	defer cancel()
	return c.Own.Resource(resource).Namespace(namespace).List(ctx, options)
}

// definedBy names any object of a custom kind.
func (c *Client) definedBy(ctx context.Context, m Mapping, ref fleet.ObjectRef) (fleet.Cause, error) {
	definition, err := c.Read(ctx, m, ref)
	if apierrors.IsNotFound(err) {
		return fleet.Cause{}, nil
	}
	if err != nil {
		return fleet.Cause{}, err
	}
	if !established(definition) {
		return fleet.Cause{}, nil // it never had an object
	}
	resource, served := definedResource(definition)
	if !served {
		return notEmpty("none of its versions is served, so that nobody can tell what would be deleted with it: serve one, or delete it by hand"), nil
	}
	found, err := c.first(ctx, resource, "", "", func(*metav1.PartialObjectMetadata) bool { return true })
	if err != nil {
		return fleet.Cause{}, err
	}
	if found == nil {
		return fleet.Cause{}, nil
	}
	return notEmpty("%s %q still exists, and would be deleted with it", resource.GroupResource(), strings.TrimPrefix(found.Namespace+"/"+found.Name, "/")), nil
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
