package manifest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// identify determines the identity of content and checks the required fields of an object. The error is a
// message for the user.
func identify(content map[string]any) (fleet.ObjectRef, error) {
	apiVersion, err := requiredString(content, "apiVersion")
	if err != nil {
		return fleet.ObjectRef{}, err
	}
	kind, err := requiredString(content, "kind")
	if err != nil {
		return fleet.ObjectRef{}, err
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || gv.Version == "" {
		return fleet.ObjectRef{}, fmt.Errorf("apiVersion %s is neither \"version\" nor \"group/version\"", quoteShort(apiVersion))
	}
	ref := fleet.ObjectRef{Group: gv.Group, Version: gv.Version, Kind: kind}
	if err := checkType(ref); err != nil {
		return fleet.ObjectRef{}, err
	}
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		return fleet.ObjectRef{}, fmt.Errorf("%s has no metadata", kind)
	}
	if err := checkMetadata(&ref, metadata); err != nil {
		return fleet.ObjectRef{}, fmt.Errorf("%s: %w", kind, err)
	}
	return ref, nil
}

func checkMetadata(ref *fleet.ObjectRef, metadata map[string]any) error {
	if name, ok := metadata["generateName"]; ok && name != "" && name != nil {
		return errors.New("metadata.generateName is not supported: each sync would create another object; set metadata.name instead, " +
			"and give a Job that has to run again another name, for example one that ends with the tag of its image")
	}
	name, err := requiredString(metadata, "name")
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	if err := checkSegment("metadata.name", name, maxName); err != nil {
		return err
	}
	ref.Name = name
	switch namespace := metadata["namespace"].(type) {
	case nil:
	case string:
		if err := checkSegment("metadata.namespace", namespace, maxName); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		ref.Namespace = namespace
	default:
		return errors.New("metadata.namespace must be a string: quote it")
	}
	for _, field := range []string{"labels", "annotations"} {
		if err := checkStringMap(metadata, field); err != nil {
			return err
		}
	}
	if clusterScoped, known := IsClusterScoped(*ref); known && clusterScoped {
		// The API server drops it too. Two spellings of one object must have one identity.
		ref.Namespace = ""
		delete(metadata, "namespace")
	}
	return nil
}

func requiredString(m map[string]any, field string) (string, error) {
	switch v := m[field].(type) {
	case nil:
		return "", fmt.Errorf("%s is missing", field)
	case string:
		if v == "" {
			return "", fmt.Errorf("%s is empty", field)
		}
		return v, nil
	default:
		return "", fmt.Errorf("%s must be a string: quote it", field)
	}
}

// checkStringMap refuses labels and annotations that are not strings. Unquoted numbers and booleans are common
// mistakes, and helpers that add a label would silently drop the whole map.
func checkStringMap(metadata map[string]any, field string) error {
	value, ok := metadata[field]
	if !ok || value == nil {
		return nil
	}
	m, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("metadata.%s must be a map", field)
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if _, ok := m[key].(string); !ok {
			return fmt.Errorf("metadata.%s: the value of %q must be a string: quote it", field, key)
		}
	}
	return nil
}

// listItems returns the items of a List or XList, and whether content is one. A kind whose name ends in List is
// an object if it has a name, which lists cannot have.
func listItems(content map[string]any) (items []any, isList bool, err error) {
	kind, _ := content["kind"].(string)
	value, hasItems := content["items"]
	if !strings.HasSuffix(kind, "List") || (kind != "List" && !hasItems) {
		return nil, false, nil
	}
	if metadata, ok := content["metadata"].(map[string]any); ok && metadata["name"] != nil {
		return nil, false, nil
	}
	items, ok := value.([]any)
	if !ok && value != nil {
		if kind != "List" {
			return nil, false, nil
		}
		return nil, true, errors.New("items of a List must be a list")
	}
	return items, true, nil
}

// inheritType sets the type of an item of a typed list (DeploymentList), which the API server omits there.
func inheritType(list, item map[string]any) {
	kind, _ := list["kind"].(string)
	if kind == "List" {
		return
	}
	if item["kind"] == nil {
		item["kind"] = strings.TrimSuffix(kind, "List")
	}
	if item["apiVersion"] == nil {
		item["apiVersion"] = list["apiVersion"]
	}
}
