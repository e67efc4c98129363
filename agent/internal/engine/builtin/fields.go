package builtin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"reflect"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// fieldSet is a set of fields as metadata.managedFields writes it (FieldsV1): a tree whose keys
// are "f:<field>", "k:<keys of a list item>", "v:<value of a set>", "i:<index>" and ".", which
// stands for the node itself. A node without children is owned as a whole.
type fieldSet map[string]fieldSet

// parseFields reads FieldsV1. Nothing at all is the empty set.
func parseFields(raw []byte) (fieldSet, error) {
	if len(raw) == 0 {
		return fieldSet{}, nil
	}
	var set fieldSet
	if err := json.Unmarshal(raw, &set); err != nil {
		return nil, fmt.Errorf("reading managed fields: %w", err)
	}
	return set, nil
}

// projection is a hash over the fields in set and the values that obj has there. It is equal for
// two states of an object exactly when none of these fields was changed, added or lost.
func (set fieldSet) projection(obj map[string]any) string {
	h := sha256.New()
	set.write(h, any(obj), true)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (set fieldSet) write(h hash.Hash, value any, present bool) {
	if len(set) == 0 {
		writeValue(h, value, present)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		// Lengths keep neighbouring texts apart.
		fmt.Fprintf(h, "%d:%s(", len(key), key)
		if key == "." {
			fmt.Fprintf(h, "%t", present)
		} else {
			child, ok := childOf(value, key)
			set[key].write(h, child, present && ok)
		}
		h.Write([]byte{')'})
	}
}

func writeValue(h hash.Hash, value any, present bool) {
	if !present {
		h.Write([]byte("absent"))
		return
	}
	text, err := json.Marshal(value)
	if err != nil {
		// Values come from decoded JSON; anything else is at least told apart by its type.
		text = fmt.Appendf(nil, "%T", value)
	}
	fmt.Fprintf(h, "%d:%s", len(text), text)
}

// childOf returns what the path element key selects in value.
func childOf(value any, key string) (any, bool) {
	prefix, rest, _ := strings.Cut(key, ":")
	switch prefix {
	case "f":
		m, _ := value.(map[string]any)
		child, ok := m[rest]
		return child, ok
	case "k":
		return itemByKeys(value, rest)
	case "v":
		return itemByValue(value, rest)
	case "i":
		return itemByIndex(value, rest)
	}
	return nil, false
}

func itemByKeys(value any, text string) (any, bool) {
	var keys map[string]any
	if utiljson.Unmarshal([]byte(text), &keys) != nil {
		return nil, false
	}
	items, _ := value.([]any)
	for _, item := range items {
		m, ok := item.(map[string]any)
		if ok && hasAll(m, keys) {
			return item, true
		}
	}
	return nil, false
}

func hasAll(m, keys map[string]any) bool {
	for name, want := range keys {
		if got, ok := m[name]; !ok || !reflect.DeepEqual(got, want) {
			return false
		}
	}
	return true
}

func itemByValue(value any, text string) (any, bool) {
	var want any
	if utiljson.Unmarshal([]byte(text), &want) != nil {
		return nil, false
	}
	items, _ := value.([]any)
	for _, item := range items {
		if reflect.DeepEqual(item, want) {
			return item, true
		}
	}
	return nil, false
}

func itemByIndex(value any, text string) (any, bool) {
	var index int
	if json.Unmarshal([]byte(text), &index) != nil {
		return nil, false
	}
	items, _ := value.([]any)
	if index < 0 || index >= len(items) {
		return nil, false
	}
	return items[index], true
}

// visit calls f for every field that set owns, with its path in the form that the API server uses
// in conflict messages (.spec.containers[name="web"].image) and its value in obj.
func (set fieldSet) visit(obj map[string]any, f func(path string, value any, present bool)) {
	set.visitAt("", any(obj), true, f)
}

func (set fieldSet) visitAt(path string, value any, present bool, f func(string, any, bool)) {
	if len(set) == 0 {
		f(path, value, present)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		if key == "." {
			// The item itself is ours, whatever others put into it.
			f(path, nil, present)
			continue
		}
		child, ok := childOf(value, key)
		set[key].visitAt(path+elementString(key), child, present && ok, f)
	}
}

// elementString writes one path element as structured-merge-diff does.
func elementString(key string) string {
	prefix, rest, _ := strings.Cut(key, ":")
	switch prefix {
	case "f":
		return "." + rest
	case "v":
		return "[=" + rest + "]"
	case "k":
		var keys map[string]any
		if utiljson.Unmarshal([]byte(rest), &keys) != nil {
			return "[" + rest + "]"
		}
		parts := make([]string, 0, len(keys))
		for _, name := range slices.Sorted(maps.Keys(keys)) {
			text, err := json.Marshal(keys[name])
			if err != nil {
				return "[" + rest + "]"
			}
			parts = append(parts, name+"="+string(text))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return "[" + rest + "]"
}

// has reports whether path, written as visit writes it, is in the set.
func (set fieldSet) has(path string) bool {
	found := false
	set.visit(nil, func(p string, _ any, _ bool) { found = found || p == path })
	return found
}

// differing returns the paths in set at which before and after differ, at most limit of them.
func (set fieldSet) differing(before, after map[string]any, limit int) []string {
	type at struct {
		value   any
		present bool
	}
	old := map[string]at{}
	set.visit(before, func(path string, value any, present bool) { old[path] = at{value, present} })
	var out []string
	set.visit(after, func(path string, value any, present bool) {
		was := old[path]
		if len(out) < limit && (was.present != present || present && !reflect.DeepEqual(was.value, value)) && !slices.Contains(out, path) {
			out = append(out, path)
		}
	})
	return out
}
