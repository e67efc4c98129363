package fieldset

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Set is a set of fields as metadata.managedFields writes it (FieldsV1): a tree whose keys
// are "f:<field>", "k:<keys of a list item>", "v:<value of a set>", "i:<index>" and ".", which
// stands for the node itself. A node without children is owned as a whole.
type Set map[string]Set

// Parse reads FieldsV1. Empty input is the empty set.
func Parse(raw []byte) (Set, error) {
	if len(raw) == 0 {
		return Set{}, nil
	}
	var set Set
	if err := json.Unmarshal(raw, &set); err != nil {
		return nil, fmt.Errorf("reading managed fields: %w", err)
	}
	return set, nil
}

// fromTree makes a Set of decoded FieldsV1. A nil tree is the empty set.
func fromTree(tree map[string]any) (Set, error) {
	set := make(Set, len(tree))
	for key, child := range tree {
		below, ok := child.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("reading managed fields: %q is no object", key)
		}
		var err error
		if set[key], err = fromTree(below); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// Projection is a hash over the fields in set and the values that obj has there. It is equal for
// two states of an object exactly when none of these fields was changed, added or removed. Inventories
// keep the hash, so its input must not change between releases.
func (set Set) Projection(obj map[string]any) string {
	sum := sha256.Sum256(set.write(nil, any(obj), true))
	return hex.EncodeToString(sum[:16])
}

func (set Set) write(out []byte, value any, present bool) []byte {
	if len(set) == 0 {
		return writeValue(out, value, present)
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		out = append(writeSized(out, key), '(')
		if key == "." {
			out = strconv.AppendBool(out, present)
		} else {
			child, ok := childOf(value, key)
			out = set[key].write(out, child, present && ok)
		}
		out = append(out, ')')
	}
	return out
}

// writeSized writes the length of a text and then the text, so that two texts in a row are unambiguous.
func writeSized[T string | []byte](out []byte, text T) []byte {
	out = append(strconv.AppendInt(out, int64(len(text)), 10), ':')
	return append(out, text...)
}

func writeValue(out []byte, value any, present bool) []byte {
	if !present {
		return append(out, "absent"...)
	}
	text, err := json.Marshal(value)
	if err != nil {
		// Values come from decoded JSON. The type at least distinguishes anything else.
		text = fmt.Appendf(nil, "%T", value)
	}
	return writeSized(out, text)
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
func (set Set) visit(obj map[string]any, f func(path string, value any, present bool)) {
	set.visitAt("", any(obj), true, f)
}

func (set Set) visitAt(path string, value any, present bool, f func(string, any, bool)) {
	if len(set) == 0 {
		f(path, value, present)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		if key == "." {
			// The item itself is ours. Others may own fields in it.
			f(path, nil, present)
			continue
		}
		child, ok := childOf(value, key)
		set[key].visitAt(path+elementString(key), child, present && ok, f)
	}
}

// elementString writes one path element in the form of conflict messages.
func elementString(key string) string {
	element, err := fieldpath.DeserializePathElement(key)
	if err != nil {
		_, rest, _ := strings.Cut(key, ":")
		return "[" + rest + "]"
	}
	return element.String()
}

// has reports whether path, written as visit writes it, is in the set.
func (set Set) has(path string) bool {
	found := false
	set.visit(nil, func(p string, _ any, _ bool) { found = found || p == path })
	return found
}

// Names are the names of fields, in the form of conflict messages.
type Names []string

// Names returns the names of the fields in the set.
func (set Set) Names() Names {
	var out Names
	set.visit(nil, func(path string, _ any, _ bool) { out = append(out, path) })
	return out
}

// Hash is a hash over the names in any order, without duplicates. Inventories keep the hash, so its input must not change
// between releases.
func (names Names) Hash() string {
	var text []byte
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		text = writeSized(text, name)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]) // each inventory entry has one
}

// Differing returns the paths in set at which before and after differ, at most limit of them.
func (set Set) Differing(before, after map[string]any, limit int) []string {
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
