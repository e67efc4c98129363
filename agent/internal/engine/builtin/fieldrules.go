package builtin

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

// fieldRules are the rules of a policy that speak of one object. What they name is sent when the object
// is created. From then on whatever the cluster holds there is right: it is no drift, and an apply
// leaves both the value and its owner as they are.
type fieldRules []fleet.FieldRule

// rulesFor picks the rules that speak of an object. A server accepts no rule that cannot be read.
func rulesFor(texts []string, ref fleet.ObjectRef) fieldRules {
	var out fieldRules
	for _, text := range texts {
		if rule, err := fleet.ParseFieldRule(text); err == nil && rule.Matches(ref) {
			out = append(out, rule)
		}
	}
	return out
}

// strip returns an object without what the rules name.
func (rules fieldRules) strip(object map[string]any) map[string]any {
	out := runtime.DeepCopyJSON(object)
	for _, rule := range rules {
		rule.Remove(out)
	}
	return out
}

// projection is fieldSet.projection of our fields in a live object, but for what the rules name.
func (rules fieldRules) projection(live *unstructured.Unstructured) string {
	return rules.projectionOf(ourFields(live), live)
}

func (rules fieldRules) projectionOf(ours fieldSet, live *unstructured.Unstructured) string {
	if len(rules) == 0 {
		return ours.projection(live.Object)
	}
	left, ok := ours.without(live.Object, rules.strip(live.Object))
	if !ok {
		return "" // a set without fields stands for the whole object
	}
	return left.projection(live.Object)
}

// without returns the fields of set that are in whole and in part, which is whole less some of its
// fields, and whether the node itself is left. Lists of both have the same length.
func (set fieldSet) without(whole, part any) (left fieldSet, ok bool) {
	if len(set) == 0 {
		return set, true
	}
	left = fieldSet{}
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
		if rest, ok := child.without(was, is); ok {
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

// extract returns of a live value what set owns.
func extract(live any, set fieldSet) any {
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

// withKeys gives an item of a list the fields that it is told apart by: an apply has to name them.
func withKeys(item any, key string) any {
	fields, ok := item.(map[string]any)
	var keys map[string]any
	if ok && strings.HasPrefix(key, "k:") && utiljson.Unmarshal([]byte(key[2:]), &keys) == nil {
		maps.Copy(fields, keys)
	}
	return item
}
