package helm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"path"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/kedge-dev/kedge/internal/helmset"
	"github.com/kedge-dev/kedge/internal/render/alias"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// inlineValues is the source name in errors about inline values.
const inlineValues = "helm.values"

// inlineSet is the source name in errors about single values.
const inlineSet = "helm.set"

// userValues merges the values of the deployment in Helm's order: values files, inline values, then single
// values. Single values are applied to the merged values, because an expression may change one item of a list.
func (b *builder) userValues(ctx context.Context) (map[string]any, error) {
	merged := map[string]any{}
	for _, name := range b.req.Helm.ValuesFiles {
		where := b.valuesPath(name)
		data, err := b.files.Read(ctx, where)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &treefs.Error{Path: where, Problem: "there is no such values file: names are relative to the chart, or to the root of the repository if they start with a slash"}
		}
		if err != nil {
			return nil, err
		}
		if merged, err = mergeValues(merged, where, data); err != nil {
			return nil, err
		}
	}
	merged, err := mergeValues(merged, inlineValues, []byte(b.req.Helm.Values))
	if err != nil {
		return nil, err
	}
	if merged, err = helmset.Apply(merged, b.req.Helm.Set); err != nil {
		return nil, &treefs.Error{Path: inlineSet, Problem: oneLine(err.Error())}
	}
	return merged, nil
}

// valuesPath returns the path of a values file. treefs checks that it is inside the repository.
func (b *builder) valuesPath(name string) string {
	if rooted, ok := strings.CutPrefix(name, "/"); ok {
		return path.Clean(rooted)
	}
	return path.Join(b.folder, name)
}

// mergeValues merges the values in data into merged.
func mergeValues(merged map[string]any, where string, data []byte) (map[string]any, error) {
	if err := alias.Check(data); err != nil {
		return nil, &treefs.Error{Path: where, Problem: err.Error()}
	}
	values, err := loader.LoadValues(bytes.NewReader(data))
	if err != nil {
		return nil, &treefs.Error{Path: where, Problem: "not values: " + oneLine(err.Error())}
	}
	if sops, ok := values["sops"].(map[string]any); ok && sops["mac"] != nil {
		return nil, &treefs.Error{Path: where, Problem: "the values are encrypted with SOPS, which is not supported yet: the chart would get the encrypted text"}
	}
	return loader.MergeMaps(merged, values), nil
}

// dropRemoteSchemas removes value schemas with external references, which Helm would fetch.
func (b *builder) dropRemoteSchemas(c *chart.Chart) {
	var schema any
	if json.Unmarshal(c.Schema, &schema) == nil {
		ids := map[string]bool{}
		collectIDs(schema, ids)
		if ref := remoteRef(schema, ids); ref != "" {
			c.Schema = nil
			b.note("the values of the chart %s are not checked: its values.schema.json refers to %s, and renders download nothing", c.Name(), ref)
		}
	}
	for _, sub := range c.Dependencies() {
		b.dropRemoteSchemas(sub)
	}
}

func collectIDs(schema any, ids map[string]bool) {
	switch v := schema.(type) {
	case map[string]any:
		if id, ok := v["$id"].(string); ok {
			ids[strings.TrimSuffix(id, "#")] = true
		}
		for _, item := range v {
			collectIDs(item, ids)
		}
	case []any:
		for _, item := range v {
			collectIDs(item, ids)
		}
	}
}

// remoteRef returns a reference that leads out of the schema, or "". The library contains the drafts of
// json-schema.org, and does not resolve urns.
func remoteRef(schema any, ids map[string]bool) string {
	switch v := schema.(type) {
	case map[string]any:
		for _, key := range []string{"$ref", "$dynamicRef", "$recursiveRef", "$schema"} {
			if ref, ok := v[key].(string); ok && !isLocalRef(ref, ids) {
				return ref
			}
		}
		for _, item := range v {
			if ref := remoteRef(item, ids); ref != "" {
				return ref
			}
		}
	case []any:
		for _, item := range v {
			if ref := remoteRef(item, ids); ref != "" {
				return ref
			}
		}
	}
	return ""
}

func isLocalRef(ref string, ids map[string]bool) bool {
	base, _, _ := strings.Cut(ref, "#")
	at, err := url.Parse(base)
	return base == "" || ids[base] || err == nil && (at.Host == "json-schema.org" || at.Scheme == "urn")
}
