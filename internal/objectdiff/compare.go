package objectdiff

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// path is the path of a field: keys of maps, and items of lists in brackets.
type path []string

func (p path) key(name string) path {
	if quoted := strconv.Quote(name); name == "" || strings.ContainsAny(name, ".[] ") || len(quoted) != len(name)+2 {
		name = quoted
	}
	return append(slices.Clip(p), name)
}

func (p path) item(name string) path {
	if quoted := strconv.Quote(name); len(quoted) != len(name)+2 {
		name = quoted
	}
	return append(slices.Clip(p), "["+cut(name)+"]")
}

func (p path) String() string {
	var b strings.Builder
	for i, part := range p {
		switch {
		case strings.HasPrefix(part, `"`):
			b.WriteString("[" + part + "]")
		case i > 0 && !strings.HasPrefix(part, "["):
			b.WriteString("." + part)
		default:
			b.WriteString(part)
		}
	}
	return b.String()
}

// collector gathers the fields of one object.
type collector struct {
	secret bool
	left   int
	fields []Field
	more   int
}

// absent is the value of a missing field; a null field is not absent.
type absent struct{}

func (c *collector) compare(from, to any, at path) {
	if from == nil && len(at) == 0 {
		from = absent{}
	}
	if to == nil && len(at) == 0 {
		to = absent{}
	}
	c.values(from, to, at)
}

func (c *collector) values(from, to any, at path) {
	if reflect.DeepEqual(from, to) {
		return
	}
	if c.hides(at) {
		c.add(from, to, at, true)
		return
	}
	a, b := folded(from, to), folded(to, from)
	mapA, okA := a.(map[string]any)
	mapB, okB := b.(map[string]any)
	if okA && okB && len(mapA)+len(mapB) > 0 {
		c.maps(mapA, mapB, at)
		return
	}
	if c.hidesBelow(at) { // an unusual form of a Secret: the names of items could reveal values
		c.add(from, to, at, true)
		return
	}
	listA, okA := a.([]any)
	listB, okB := b.([]any)
	if okA && okB && c.lists(listA, listB, at) {
		return
	}
	c.add(from, to, at, false)
}

// folded returns a value, or, if there is none, an empty one of the other's kind: then every field of the other
// is listed.
func folded(v, other any) any {
	if v != (absent{}) {
		return v
	}
	switch other.(type) {
	case map[string]any:
		return map[string]any{}
	case []any:
		return []any{}
	}
	return v
}

func (c *collector) maps(from, to map[string]any, at path) {
	keys := slices.Sorted(maps.Keys(from))
	for key := range to {
		if _, ok := from[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		c.values(get(from, key), get(to, key), at.key(key))
	}
}

func get(m map[string]any, key string) any {
	if v, ok := m[key]; ok {
		return v
	}
	return absent{}
}

// hides reports whether a value at a path is secret.
func (c *collector) hides(at path) bool {
	if len(at) == 3 && at[0] == "metadata" && at[1] == "annotations" && at[2] == strconv.Quote("kubectl.kubernetes.io/last-applied-configuration") {
		return true
	}
	return c.secret && len(at) == 2 && (at[0] == "data" || at[0] == "stringData")
}

// hidesBelow reports whether a value below a path is secret, so that the whole value must be hidden.
func (c *collector) hidesBelow(at path) bool {
	if len(at) > 0 && len(at) < 3 && at[0] == "metadata" {
		return len(at) == 1 || at[1] == "annotations"
	}
	return c.secret && len(at) == 1 && (at[0] == "data" || at[0] == "stringData")
}

func (c *collector) add(from, to any, at path, masked bool) {
	if len(c.fields) >= c.left {
		c.more++
		return
	}
	f := Field{Path: at.String(), Kind: Changed}
	if from == (absent{}) {
		f.Kind = Added
	}
	if to == (absent{}) {
		f.Kind = Removed
	}
	f.Old, f.New = shown(from, to, masked)
	c.fields = append(c.fields, f)
}
