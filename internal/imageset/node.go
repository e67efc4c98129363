package imageset

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// target returns the target of an alias, or the node itself.
func target(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// root returns the value of a document, or nil.
func root(doc *yaml.Node) *yaml.Node {
	if doc == nil || len(doc.Content) == 0 {
		return nil
	}
	return doc.Content[0]
}

// pair is one key of a mapping and its value, as written.
type pair struct{ key, value *yaml.Node }

func pairs(m *yaml.Node) []pair {
	if m == nil || m.Kind != yaml.MappingNode {
		return nil
	}
	out := make([]pair, 0, len(m.Content)/2)
	for i := 0; i+1 < len(m.Content); i += 2 {
		out = append(out, pair{m.Content[i], m.Content[i+1]})
	}
	return out
}

// find returns the value of a key of the mapping itself, or nil.
func (f *file) find(m *yaml.Node, key string) *yaml.Node {
	if !f.spend(1) || m == nil || m.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(m.Content) && f.spend(1); i += 2 {
		k, v := m.Content[i], m.Content[i+1]
		if k.Kind == yaml.ScalarNode && k.Value == key {
			f.spend(len(text(v))) // names and images are built from it
			return v
		}
	}
	return nil
}

// maxMerges limits the depth of <<, which can be circular.
const maxMerges = 10

// lookUp returns the value of a key, including keys merged with <<.
func (f *file) lookUp(m *yaml.Node, key string) *yaml.Node {
	return f.lookUpWithin(m, key, maxMerges)
}

func (f *file) lookUpWithin(m *yaml.Node, key string, depth int) *yaml.Node {
	m = target(m)
	if v := f.find(m, key); v != nil || depth == 0 {
		return v
	}
	merged := target(f.find(m, "<<"))
	if merged == nil {
		return nil
	}
	sources := []*yaml.Node{merged}
	if merged.Kind == yaml.SequenceNode {
		sources = merged.Content
	}
	for _, source := range sources {
		if v := f.lookUpWithin(source, key, depth-1); v != nil || f.spent() {
			return v
		}
	}
	return nil
}

// text returns the value of a scalar; "" for other nodes and for null.
func text(n *yaml.Node) string {
	n = target(n)
	if n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return ""
	}
	return strings.TrimSpace(n.Value)
}

func isScalar(n *yaml.Node) bool {
	n = target(n)
	return n != nil && n.Kind == yaml.ScalarNode
}

// shared returns a note if aliases of an anchor use the node too, or "".
func shared(n *yaml.Node) string {
	if anchor := target(n).Anchor; anchor != "" {
		return fmt.Sprintf("anchor &%s: every *%s changes too", anchor, anchor)
	}
	return ""
}

// step extends the path to a field.
func (f *file) step(path, key string) string {
	if strings.ContainsAny(key, ".[] ") {
		key = strconv.Quote(key)
	}
	if path == "" {
		return f.long(key)
	}
	return f.long(path + "." + key)
}

// item extends the path to an item of a list, by its name if it has one.
func (f *file) item(path string, i int, n *yaml.Node) string {
	if name := text(f.find(target(n), "name")); name != "" {
		return f.long(fmt.Sprintf("%s[%s]", path, name))
	}
	return f.long(fmt.Sprintf("%s[%d]", path, i))
}
