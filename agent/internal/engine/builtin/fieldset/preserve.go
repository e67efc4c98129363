package fieldset

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Preserve sets the fields of body that the rules name to what the live object has there, as far as Kedge owns it:
// an apply without a field that Kedge owns deletes it, and an apply with more fields claims them from others. It does
// so for fields that the manifest no longer has as well, except below a list item that the manifest no longer has:
// those go with the item. The request is bound to the resourceVersion of the live object.
func (rules Rules) Preserve(body, live *unstructured.Unstructured) {
	ours := OwnFields(live)
	if len(ours) == 0 {
		ours = nil
	}
	want := ruled{whole: body.Object, rest: rules.Strip(body.Object)}
	body.Object = want.preserveMap(ruled{whole: live.Object, rest: rules.Strip(live.Object)}, ours)
	body.SetResourceVersion(live.GetResourceVersion())
}

// ruled is a value, and what is left of it without the fields that rules name. all: they name the value itself.
type ruled struct {
	whole, rest any
	all         bool
}

func (n ruled) field(key string) (ruled, bool) {
	whole, _ := n.whole.(map[string]any)
	rest, _ := n.rest.(map[string]any)
	value, exists := whole[key]
	left, stays := rest[key]
	return ruled{value, left, exists && !stays}, exists
}

func (n ruled) item(i int) (ruled, bool) {
	whole, _ := n.whole.([]any)
	rest, _ := n.rest.([]any)
	if i >= len(whole) || i >= len(rest) {
		return ruled{}, false
	}
	return ruled{whole[i], rest[i], whole[i] != nil && rest[i] == nil}, true
}

// keyed returns the item of a list that key identifies.
func (n ruled) keyed(key string) (ruled, bool) {
	value, exists := childOf(n.whole, key)
	left, stays := counterpart(n.whole, n.rest, key)
	return ruled{value, left, exists && !stays}, exists
}

// preserve merges the rest of a desired value with the ignored fields of the live one that Kedge owns. ours is nil
// where Kedge owns nothing, and empty where it owns the whole value.
func (n ruled) preserve(live ruled, ours Set) any {
	switch n.whole.(type) {
	case map[string]any:
		return n.preserveMap(live, ours)
	case []any:
		return n.preserveList(live, ours)
	}
	return n.rest
}

func (n ruled) preserveMap(live ruled, ours Set) map[string]any {
	desired, _ := n.whole.(map[string]any)
	there, _ := live.whole.(map[string]any)
	out := make(map[string]any, len(desired))
	for key := range desired {
		value, _ := n.field(key)
		now, exists := live.field(key)
		set := ours.below("f:" + key)
		if !value.all {
			if merged := value.preserve(now, set); !isEmpty(merged) || isEmpty(value.whole) {
				out[key] = merged
			}
		} else if exists && set != nil {
			out[key] = extract(now.whole, set)
		}
	}
	for key := range there {
		if _, said := desired[key]; said {
			continue
		}
		now, _ := live.field(key)
		if kept := now.dropped(ours.below("f:" + key)); kept != nil {
			out[key] = kept
		}
	}
	return out
}

// dropped returns the ignored fields of a live value that Kedge owns and that the manifest no longer has; nil when
// there are none.
func (n ruled) dropped(ours Set) any {
	if ours == nil {
		return nil
	}
	if n.all {
		return extract(n.whole, ours)
	}
	var kept any
	switch n.whole.(type) {
	case map[string]any:
		kept = ruled{}.preserveMap(n, ours)
	case []any:
		kept = ruled{}.preserveList(n, ours)
	}
	if isEmpty(kept) {
		return nil
	}
	return kept
}

// isEmpty reports whether a value is an empty map or list: applying one claims it.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return false
}

func (n ruled) preserveList(live ruled, ours Set) []any {
	desired, _ := n.whole.([]any)
	out := make([]any, 0, len(desired))
	met := map[string]bool{}
	for i := range desired {
		value, _ := n.item(i)
		now, set, key, exists := ours.match(value.whole, live, i)
		met[key] = true
		switch {
		case !value.all && ours.isNew(value.whole, live.whole, i):
			out = append(out, value.whole) // the rules may name fields that a new item needs
		case !value.all:
			out = append(out, value.preserve(now, set))
		case exists:
			out = append(out, withKeys(extract(now.whole, set), key))
		}
	}
	return append(out, ours.itemsLeft(live, met, len(desired))...)
}

// itemsLeft returns the items of a live list that Kedge owns and that rules name as a whole, except those in met. Of
// an atomic list it returns those from number on.
func (set Set) itemsLeft(live ruled, met map[string]bool, number int) []any {
	var out []any
	if set != nil && len(set) == 0 {
		for i := number; ; i++ {
			item, exists := live.item(i)
			if !exists {
				return out
			}
			if item.all {
				out = append(out, item.whole)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		if item, exists := live.keyed(key); exists && item.all && !met[key] {
			out = append(out, withKeys(extract(item.whole, set[key]), key))
		}
	}
	return out
}

// below returns the subset below key.
func (set Set) below(key string) Set {
	if set != nil && len(set) == 0 {
		return set
	}
	return set[key]
}

// match finds the item of a live list that Kedge owns and that corresponds to value, which is item i of another list:
// by its keys, or by its index where the list is atomic.
func (set Set) match(value any, live ruled, i int) (now ruled, fields Set, key string, exists bool) {
	if set != nil && len(set) == 0 {
		now, exists = live.item(i)
		return now, set, "", exists
	}
	for key, fields := range set {
		if _, same := childOf([]any{value}, key); !same || key[0] == 'i' {
			continue
		}
		if now, ok := live.keyed(key); ok {
			return now, fields, key, true
		}
	}
	return ruled{}, nil, "", false
}

// isNew reports whether no item of a live list, whoever owns it, corresponds to value, which is item i of another list.
func (set Set) isNew(value, live any, i int) bool {
	items, _ := live.([]any)
	if len(set) == 0 {
		return len(items) == 0 || set != nil && i >= len(items)
	}
	for key := range set {
		text, isKeys := strings.CutPrefix(key, "k:")
		var keys map[string]any
		if !isKeys || utiljson.Unmarshal([]byte(text), &keys) != nil {
			continue
		}
		fields, _ := value.(map[string]any)
		maps.DeleteFunc(keys, func(name string, _ any) bool { _, said := fields[name]; return !said }) // they have defaults
		for name := range keys {
			keys[name] = fields[name]
		}
		return !slices.ContainsFunc(items, func(item any) bool {
			there, ok := item.(map[string]any)
			return ok && hasAll(there, keys)
		})
	}
	return false
}
