package fieldset

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Limits of the text for one object: people read it, and every status carries it.
const (
	maxDiffs     = 10
	maxDiffValue = 80
)

// serverFields are fields of the metadata that the API server sets.
var serverFields = []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink"}

// hidden stands for a value that must not be shown.
const hidden = "(hidden)"

// Diff describes what differs between two states of an object: one text per field, with the old and
// the new value, at most maxDiffs of them and then how many more there are. Data of Secrets is hidden.
func Diff(before, after *unstructured.Unstructured) []string {
	d := differ{secret: after.GetKind() == "Secret" && after.GroupVersionKind().Group == ""}
	d.compare("", Authored(before), Authored(after))
	if more := d.count - len(d.found); more > 0 {
		d.found = append(d.found, fmt.Sprintf("and %d more", more))
	}
	return d.found
}

// Authored returns an object without status and without the metadata that the API server sets.
func Authored(obj *unstructured.Unstructured) map[string]any {
	out := maps.Clone(obj.Object)
	delete(out, "status")
	if metadata, ok := out["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, field := range serverFields {
			delete(metadata, field)
		}
		out["metadata"] = metadata
	}
	return out
}

type differ struct {
	secret bool
	found  []string
	count  int
}

func (d *differ) compare(path string, before, after any) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch old := before.(type) {
	case map[string]any:
		if now, ok := after.(map[string]any); ok {
			d.compareMaps(path, old, now)
			return
		}
	case []any:
		if now, ok := after.([]any); ok {
			d.compareMaps(path, itemsOf(old, now), itemsOf(now, old))
			return
		}
	}
	d.note(path, d.show(path, before), d.show(path, after))
}

func (d *differ) compareMaps(path string, before, after map[string]any) {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(after))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		at := path + "." + key
		if strings.HasPrefix(key, "[") {
			at = path + key
		}
		old, had := before[key]
		now, has := after[key]
		switch {
		case had && has:
			d.compare(at, old, now)
		case had:
			d.note(at, d.show(at, old), "(none)")
		default:
			d.note(at, "(none)", d.show(at, now))
		}
	}
}

// itemsOf makes a map of a list: by name where the items of both lists have one, else by number.
func itemsOf(list, other []any) map[string]any {
	out := make(map[string]any, len(list))
	named := allNamed(list) && allNamed(other)
	for i, item := range list {
		key := fmt.Sprintf("[%d]", i)
		if named {
			key = fmt.Sprintf("[name=%q]", item.(map[string]any)["name"])
		}
		out[key] = item
	}
	return out
}

// allNamed reports whether every item is a map with a name of its own.
func allNamed(list []any) bool {
	seen := map[string]bool{}
	for _, item := range list {
		fields, _ := item.(map[string]any)
		name, ok := fields["name"].(string)
		if !ok || seen[name] {
			return false
		}
		seen[name] = true
	}
	return true
}

func (d *differ) note(path, before, after string) {
	d.count++
	if len(d.found) < maxDiffs {
		d.found = append(d.found, fmt.Sprintf("%s: %s → %s", path, before, after))
	}
}

// show shortens a value. It hides the annotation in which kubectl keeps a copy of the whole object.
func (d *differ) show(path string, value any) string {
	if d.secret && (strings.HasPrefix(path, ".data") || strings.HasPrefix(path, ".stringData")) ||
		d.secret && path == ".metadata.annotations" || strings.HasSuffix(path, "/last-applied-configuration") {
		return hidden
	}
	text, err := json.Marshal(value)
	if err != nil {
		return hidden
	}
	if runes := []rune(string(text)); len(runes) > maxDiffValue {
		return string(runes[:maxDiffValue]) + "…"
	}
	return string(text)
}
