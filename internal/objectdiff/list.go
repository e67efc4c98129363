package objectdiff

import (
	"fmt"
	"slices"
	"strings"
)

// listKeys are the fields by which Kubernetes identifies the items of a list, other than name. The first that
// all items have is used.
var listKeys = map[string][][]string{
	"ports":                     {{"containerPort", "protocol"}, {"port", "protocol"}, {"containerPort"}, {"port"}},
	"volumeMounts":              {{"mountPath"}},
	"volumeDevices":             {{"devicePath"}},
	"hostAliases":               {{"ip"}},
	"topologySpreadConstraints": {{"topologyKey", "whenUnsatisfiable"}, {"topologyKey"}},
	"conditions":                {{"type"}},
	"ownerReferences":           {{"uid"}},
}

// lists compares items by name where Kubernetes does, and otherwise by index. It returns false for lists of
// plain values, which are shown as a whole.
func (c *collector) lists(from, to []any, at path) bool {
	if len(from)+len(to) == 0 || !allMaps(from) || !allMaps(to) {
		return false
	}
	namesA, namesB := identify(from, to, at[len(at)-1])
	itemsB := make(map[string]any, len(to))
	for i, name := range namesB {
		itemsB[name] = to[i]
	}
	seen := make(map[string]bool, len(from))
	var common []string
	for i, name := range namesA {
		seen[name] = true
		other, ok := itemsB[name]
		if !ok {
			other = absent{}
		} else {
			common = append(common, name)
		}
		c.values(from[i], other, at.item(name))
	}
	var commonB []string
	for i, name := range namesB {
		if seen[name] {
			commonB = append(commonB, name)
			continue
		}
		c.values(absent{}, to[i], at.item(name))
	}
	if !slices.Equal(common, commonB) {
		c.add("order: "+strings.Join(common, ", "), "order: "+strings.Join(commonB, ", "), at, false)
	}
	return true
}

func allMaps(list []any) bool {
	return !slices.ContainsFunc(list, func(v any) bool { _, ok := v.(map[string]any); return !ok })
}

// identify names the items of two lists: by their keys, or by index if keys are missing or not unique.
func identify(from, to []any, field string) (a, b []string) {
	for _, keys := range append(slices.Clone(listKeys[field]), []string{"name"}) {
		a, okA := namesBy(from, keys)
		b, okB := namesBy(to, keys)
		if okA && okB {
			return a, b
		}
	}
	return places(from), places(to)
}

func namesBy(list []any, keys []string) ([]string, bool) {
	names := make([]string, 0, len(list))
	seen := map[string]bool{}
	for _, v := range list {
		m, _ := v.(map[string]any)
		var parts []string
		for _, key := range keys {
			value, ok := m[key]
			if key == "protocol" && !ok {
				value, ok = "TCP", true
			}
			if _, isMap := value.(map[string]any); !ok || isMap {
				return nil, false
			}
			parts = append(parts, fmt.Sprint(value))
		}
		name := strings.Join(parts, "/")
		if seen[name] {
			return nil, false
		}
		seen[name] = true
		names = append(names, name)
	}
	return names, true
}

func places(list []any) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = fmt.Sprint(i)
	}
	return out
}
