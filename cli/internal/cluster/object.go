package cluster

import (
	"context"
	"fmt"
	"io"
	"net/url"

	kubejson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/objectdiff"
)

// maxObject limits an object: API servers store at most a few megabytes.
const maxObject = 16 << 20

// Object reads an object as it is in the cluster, without the values of Secrets.
func (c *Cluster) Object(ctx context.Context, o apiv1.Object) (map[string]any, error) {
	ref := fleet.ObjectRef{Group: o.Group, Version: o.Version, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
	path, err := c.collection(ctx, ref)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := c.client.Open(ctx, path+"/"+url.PathEscape(o.Name), nil, "")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxObject))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", ref, err)
	}
	var object map[string]any
	if err := kubejson.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("reading %s: %w", ref, err)
	}
	return shown(object, o.Group == "" && o.Kind == "Secret"), nil
}

// shown removes from an object what only machines read and, if it is a Secret, its values.
func shown(object map[string]any, secret bool) map[string]any {
	metadata, _ := object["metadata"].(map[string]any)
	delete(metadata, "managedFields")
	if !secret {
		return object
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		for key := range annotations { // kubectl and other tools keep a copy of the object in one
			annotations[key] = objectdiff.Masked
		}
	}
	for _, field := range []string{"data", "stringData"} {
		values, ok := object[field].(map[string]any)
		if !ok && object[field] != nil {
			object[field] = objectdiff.Masked
		}
		for key := range values {
			values[key] = objectdiff.Masked
		}
	}
	return object
}
