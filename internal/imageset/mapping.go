package imageset

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// put sets a key of a mapping and adds it if it is missing.
func (f *file) put(m *yaml.Node, key, value string) error {
	if v := f.find(m, key); v != nil {
		if !isScalar(v) {
			return f.unclear(v)
		}
		return f.replace(target(v), value)
	}
	return f.insert(m, key, value)
}

// insert adds a key after the last one whose value is a scalar on the line of its key.
func (f *file) insert(m *yaml.Node, key, value string) error {
	all := pairs(m)
	for i := len(all) - 1; i >= 0; i-- {
		p := all[i]
		if p.value.Kind != yaml.ScalarNode || p.value.Line != p.key.Line || p.key.Line == 0 || isBlock(p.value) {
			continue
		}
		_, end, err := f.span(p.value)
		if err != nil {
			return err
		}
		at, text := end, ", "+jsonLike(p.key, key)+": "+encode(p.value.Style&yaml.DoubleQuotedStyle, value)
		if m.Style&yaml.FlowStyle == 0 {
			at, text = f.endOfLine(end), f.eol+strings.Repeat(" ", p.key.Column-1)+key+": "+encode(0, value)
		}
		f.splices = append(f.splices, splice{at, at, text})
		after := i + 1
		for after < len(all) && all[after].key.Line == 0 { // inserted before this one
			after++
		}
		m.Content = slices.Insert(m.Content, 2*after, scalar(key), scalar(value))
		return nil
	}
	return f.unclear(m)
}

// remove removes a key from a mapping. The first key of a mapping in a list shares its line with the dash, so
// another key replaces it.
func (f *file) remove(m *yaml.Node, key string) error {
	all := pairs(m)
	i := slices.IndexFunc(all, func(p pair) bool { return p.key.Value == key })
	if i < 0 {
		return nil
	}
	from, _, err := f.span(all[i].key)
	if err != nil {
		return err
	}
	if !isScalar(all[i].value) || all[i].value.Kind == yaml.AliasNode || isBlock(all[i].value) {
		return f.unclear(all[i].value)
	}
	_, to, err := f.span(all[i].value)
	if err != nil {
		return err
	}
	switch begin := f.beginOfLine(from); {
	case m.Style&yaml.FlowStyle != 0:
		from, to, err = f.flowPair(all, i, from, to)
	case strings.TrimLeft(string(f.data[begin:from]), " ") == "":
		from, to = f.wholeLine(begin, to)
	default:
		return f.moveUp(m, all, i)
	}
	if err != nil {
		return err
	}
	f.splices = append(f.splices, splice{from, to, ""})
	m.Content = slices.Delete(m.Content, 2*i, 2*i+2)
	return nil
}

// wholeLine returns the line between two positions, with its line break; for the last line of a file without
// one, with the line break before it.
func (f *file) wholeLine(begin, at int) (from, to int) {
	to = f.endOfLine(at)
	if to < len(f.data) {
		return begin, to + breakAt(f.data, to)
	}
	from = begin
	for from > 0 && (f.data[from-1] == '\n' || f.data[from-1] == '\r') {
		from--
	}
	return from, to
}

// flowPair returns a pair of {…} together with its comma.
func (f *file) flowPair(all []pair, i, from, to int) (int, int, error) {
	if i > 0 && isScalar(all[i-1].value) {
		_, before, err := f.span(all[i-1].value)
		return before, to, err
	}
	if i+1 < len(all) {
		next, _, err := f.span(all[i+1].key)
		return from, next, err
	}
	return from, to, nil
}

// moveUp overwrites a pair with the last one and removes the last one.
func (f *file) moveUp(m *yaml.Node, all []pair, i int) error {
	last := all[len(all)-1]
	if i == len(all)-1 || !isScalar(last.value) || last.value.Kind == yaml.AliasNode {
		return f.unclear(all[i].key)
	}
	key, value := last.key.Value, text(last.value)
	if err := f.remove(m, key); err != nil {
		return err
	}
	if err := f.replace(all[i].key, key); err != nil {
		return err
	}
	return f.replace(all[i].value, value)
}

func isBlock(n *yaml.Node) bool { return n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 }

// jsonLike writes a key in the style of its neighbor.
func jsonLike(neighbour *yaml.Node, key string) string {
	return encode(neighbour.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle), key)
}

func scalar(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
}
