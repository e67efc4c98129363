package imageset

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// target is what a node stands for: what an alias names, else itself.
func target(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// root is the value of a document; nil when it has none.
func root(doc *yaml.Node) *yaml.Node {
	if doc == nil || len(doc.Content) == 0 {
		return nil
	}
	return doc.Content[0]
}

// pair is one key of a mapping and its value, as they are written.
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

// find returns the value of a key that a mapping itself has, nil when it has none.
func find(m *yaml.Node, key string) *yaml.Node {
	for _, p := range pairs(m) {
		if p.key.Kind == yaml.ScalarNode && p.key.Value == key {
			return p.value
		}
	}
	return nil
}

// lookUp returns the value of a key, with those that are merged in by <<.
func lookUp(m *yaml.Node, key string) *yaml.Node {
	return lookUpWithin(m, key, 10)
}

func lookUpWithin(m *yaml.Node, key string, depth int) *yaml.Node {
	m = target(m)
	if v := find(m, key); v != nil || depth == 0 {
		return v
	}
	merged := target(find(m, "<<"))
	if merged == nil {
		return nil
	}
	sources := []*yaml.Node{merged}
	if merged.Kind == yaml.SequenceNode {
		sources = merged.Content
	}
	for _, source := range sources {
		if v := lookUpWithin(source, key, depth-1); v != nil {
			return v
		}
	}
	return nil
}

// text is the value of a scalar, "" for everything else and for null.
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

// shared says by which anchor others use a node as well; "" when none do.
func shared(n *yaml.Node) string {
	if anchor := target(n).Anchor; anchor != "" {
		return fmt.Sprintf("anchor &%s: whatever uses *%s changes with it", anchor, anchor)
	}
	return ""
}

// step extends the path to a field.
func step(path, key string) string {
	if strings.ContainsAny(key, ".[] ") {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// item extends the path to an item of a list: by its name, where it has one.
func item(path string, i int, n *yaml.Node) string {
	if name := text(find(target(n), "name")); name != "" {
		return fmt.Sprintf("%s[%s]", path, name)
	}
	return fmt.Sprintf("%s[%d]", path, i)
}
