package fieldset

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Rules are the rules of a policy that match one object. The fields that they name are sent when the object is
// created. Afterwards their value in the cluster is never drift, and an apply changes neither value nor owner.
type Rules []fleet.FieldRule

// RulesFor returns the rules that match an object. It skips rules that cannot be parsed, which the server refuses.
func RulesFor(texts []string, ref fleet.ObjectRef) Rules {
	var out Rules
	for _, text := range texts {
		if rule, err := fleet.ParseFieldRule(text); err == nil && rule.Matches(ref) {
			out = append(out, rule)
		}
	}
	return out
}

// Strip returns a copy of an object without the fields that the rules name.
func (rules Rules) Strip(object map[string]any) map[string]any {
	out := runtime.DeepCopyJSON(object)
	for _, rule := range rules {
		rule.Remove(out)
	}
	return out
}

// Projection is Set.Projection of the own fields of a live object, without the fields that the rules name.
func (rules Rules) Projection(live *unstructured.Unstructured) string {
	return rules.ProjectionOf(OwnFields(live), live)
}

// ProjectionOf is Projection for own fields that the caller has at hand.
func (rules Rules) ProjectionOf(ours Set, live *unstructured.Unstructured) string {
	if len(rules) == 0 {
		return ours.Projection(live.Object)
	}
	left, ok := ours.Without(live.Object, rules.Strip(live.Object))
	if !ok {
		return "" // an empty set would mean the whole object
	}
	return left.Projection(live.Object)
}

// Without returns the fields of set that are in whole and in part, which is whole less some of its
// fields, and whether the node itself is left. Lists of both have the same length.
func (set Set) Without(whole, part any) (left Set, ok bool) {
	if len(set) == 0 {
		return set, true
	}
	left = Set{}
	for key, child := range set {
		was, there := childOf(whole, key)
		if key == "." || !there {
			left[key] = child
			continue
		}
		is, stays := counterpart(whole, part, key)
		if !stays {
			continue
		}
		if rest, ok := child.Without(was, is); ok {
			left[key] = rest
		}
	}
	return left, len(left) > 0
}

// counterpart returns what stands in part where key selects something in whole.
func counterpart(whole, part any, key string) (any, bool) {
	items, isList := whole.([]any)
	if !isList {
		return childOf(part, key)
	}
	left, _ := part.([]any)
	i := slices.IndexFunc(items, func(item any) bool {
		_, found := childOf([]any{item}, key)
		return found
	})
	if at, err := strconv.Atoi(key[min(2, len(key)):]); err == nil && key[0] == 'i' {
		i = at
	}
	if i < 0 || i >= len(left) || left[i] == nil {
		return nil, false
	}
	return left[i], true
}

// extract returns the part of a live value that set owns.
func extract(live any, set Set) any {
	if len(set) == 0 {
		return live
	}
	switch live := live.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, child := range set {
			if value, ok := childOf(live, key); ok {
				out[key[2:]] = extract(value, child)
			}
		}
		return out
	case []any:
		out := []any{}
		for _, key := range slices.Sorted(maps.Keys(set)) {
			if value, ok := childOf(live, key); ok {
				out = append(out, withKeys(extract(value, set[key]), key))
			}
		}
		return out
	}
	return live
}

// withKeys adds to a list item the fields that identify it: an apply has to name them.
func withKeys(item any, key string) any {
	fields, ok := item.(map[string]any)
	var keys map[string]any
	if ok && strings.HasPrefix(key, "k:") && utiljson.Unmarshal([]byte(key[2:]), &keys) == nil {
		maps.Copy(fields, keys)
	}
	return item
}
