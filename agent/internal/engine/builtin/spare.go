package builtin

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// spare puts into body, where the rules name something, just what is ours in the live object and as it
// is there: an apply that left it out would delete it, and one that names more would claim what is
// another's. It goes for what the manifest has dropped as well, but not for what a rule names of an
// item of a list that it has dropped: that goes with its item. The request is bound to that version of
// the object.
func (rules fieldRules) spare(body, live *unstructured.Unstructured) {
	ours := ourFields(live)
	if len(ours) == 0 {
		ours = nil
	}
	want := named{whole: body.Object, rest: rules.strip(body.Object)}
	body.Object = want.spareMap(named{whole: live.Object, rest: rules.strip(live.Object)}, ours)
	body.SetResourceVersion(live.GetResourceVersion())
}

// named is a value, and what is left of it without what rules name in it. all: they name the value
// itself.
type named struct {
	whole, rest any
	all         bool
}

func (n named) field(key string) (named, bool) {
	whole, _ := n.whole.(map[string]any)
	rest, _ := n.rest.(map[string]any)
	value, exists := whole[key]
	left, stays := rest[key]
	return named{value, left, exists && !stays}, exists
}

func (n named) item(i int) (named, bool) {
	whole, _ := n.whole.([]any)
	rest, _ := n.rest.([]any)
	if i >= len(whole) || i >= len(rest) {
		return named{}, false
	}
	return named{whole[i], rest[i], whole[i] != nil && rest[i] == nil}, true
}

// keyed returns the item of a list that is told apart by key.
func (n named) keyed(key string) (named, bool) {
	value, exists := childOf(n.whole, key)
	left, stays := counterpart(n.whole, n.rest, key)
	return named{value, left, exists && !stays}, exists
}

// spare merges what rules leave of a desired value with what is ours of the live one where they name
// something. ours is nil where nothing is, and empty where the value is ours as a whole.
func (n named) spare(live named, ours fieldSet) any {
	switch n.whole.(type) {
	case map[string]any:
		return n.spareMap(live, ours)
	case []any:
		return n.spareList(live, ours)
	}
	return n.rest
}

func (n named) spareMap(live named, ours fieldSet) map[string]any {
	desired, _ := n.whole.(map[string]any)
	there, _ := live.whole.(map[string]any)
	out := make(map[string]any, len(desired))
	for key := range desired {
		value, _ := n.field(key)
		now, exists := live.field(key)
		set := ours.below("f:" + key)
		if !value.all {
			if merged := value.spare(now, set); !hollow(merged) || hollow(value.whole) {
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

// dropped returns what is ours of a live value that is not desired, where rules name something in it;
// nil when nothing is.
func (n named) dropped(ours fieldSet) any {
	if ours == nil {
		return nil
	}
	if n.all {
		return extract(n.whole, ours)
	}
	var kept any
	switch n.whole.(type) {
	case map[string]any:
		kept = named{}.spareMap(n, ours)
	case []any:
		kept = named{}.spareList(n, ours)
	}
	if hollow(kept) {
		return nil
	}
	return kept
}

// hollow reports whether a value is a map or a list with nothing in it: to apply one is to claim it.
func hollow(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return false
}

func (n named) spareList(live named, ours fieldSet) []any {
	desired, _ := n.whole.([]any)
	out := make([]any, 0, len(desired))
	met := map[string]bool{}
	for i := range desired {
		value, _ := n.item(i)
		now, set, key, exists := ours.match(value.whole, live, i)
		met[key] = true
		switch {
		case !value.all && ours.isNew(value.whole, live.whole, i):
			out = append(out, value.whole) // what it needs to exist may be among what the rules name
		case !value.all:
			out = append(out, value.spare(now, set))
		case exists:
			out = append(out, withKeys(extract(now.whole, set), key))
		}
	}
	return append(out, ours.itemsLeft(live, met, len(desired))...)
}

// itemsLeft returns those items of a live list that are ours and that rules name as a whole, but for
// those in met; of a list that is one value, those from number on.
func (set fieldSet) itemsLeft(live named, met map[string]bool, number int) []any {
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

// below returns what is ours below key.
func (set fieldSet) below(key string) fieldSet {
	if set != nil && len(set) == 0 {
		return set
	}
	return set[key]
}

// match finds the item of a live list that is ours and stands for value, which is number i of another:
// by the key that its items are told apart by, or by number where the list is one value.
func (set fieldSet) match(value any, live named, i int) (now named, fields fieldSet, key string, exists bool) {
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
	return named{}, nil, "", false
}

// isNew reports whether a live list has no item that value, number i of another, stands for: neither
// one of ours nor another's.
func (set fieldSet) isNew(value, live any, i int) bool {
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
