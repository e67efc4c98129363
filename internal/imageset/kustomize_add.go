package imageset

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// add appends an entry to images, in the style of the existing entries.
func (k *overlay) add(fields []field) error {
	f := k.file
	entry := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, field := range fields {
		entry.Content = append(entry.Content, scalar(field.key), scalar(field.value))
	}
	images := k.file.find(k.root, "images")
	var at int
	var text string
	var err error
	switch {
	case images == nil:
		at, text, err = k.section(fields)
		key := scalar("images")
		images = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		k.root.Content = append(k.root.Content, key, images)
	case k.made > 0: // by the entry before this one
		last := &f.splices[k.made-1]
		last.text = k.grown(last.text, fields)
		images.Content = append(images.Content, entry)
		return nil
	case images.Kind == yaml.ScalarNode && images.ShortTag() == "!!null":
		return k.fill(images, entry, fields)
	case images.Kind != yaml.SequenceNode:
		return f.unclear(images)
	case images.Style&yaml.FlowStyle != 0:
		at, text, err = k.flowItem(images, fields)
	default:
		at, text, err = k.blockItem(images, fields)
	}
	if err != nil {
		return err
	}
	images.Content = append(images.Content, entry)
	f.splices = append(f.splices, splice{at, at, text})
	if images.Line == 0 {
		k.made = len(f.splices)
	}
	return nil
}

// lines writes an entry of a block list, with the dash in a column.
func lines(fields []field, indent, keys int, eol string) string {
	var out []string
	for i, field := range fields {
		lead := strings.Repeat(" ", indent+keys)
		if i == 0 {
			lead = strings.Repeat(" ", indent) + "-" + strings.Repeat(" ", keys-1)
		}
		out = append(out, lead+field.key+": "+encode(0, field.value))
	}
	return strings.Join(out, eol)
}

// braces writes an entry of a flow list. Keys and values in quotes are JSON as well.
func braces(fields []field, json bool) string {
	var out []string
	for _, field := range fields {
		key, value := field.key, encode(0, field.value)
		if json {
			key, value = `"`+key+`"`, `"`+field.value+`"`
		}
		out = append(out, key+": "+value)
	}
	return "{" + strings.Join(out, ", ") + "}"
}

// section returns a complete images section for the end of the file.
func (k *overlay) section(fields []field) (int, string, error) {
	f := k.file
	if k.root.Style&yaml.FlowStyle != 0 {
		at := strings.LastIndexByte(string(f.data), '}')
		if at < 0 || len(k.root.Content) == 0 {
			return 0, "", f.unclear(k.root)
		}
		return at, `, "images": [` + braces(fields, true) + "]", nil
	}
	indent := strings.Repeat(" ", max(k.root.Column-1, 0))
	body := indent + "images:" + f.eol + lines(fields, len(indent), 2, f.eol)
	if len(f.data) > 0 && f.data[len(f.data)-1] != '\n' {
		return len(f.data), f.eol + body, nil
	}
	return len(f.data), body + f.eol, nil
}

// grown returns the text of a new section with one more entry.
func (k *overlay) grown(text string, fields []field) string {
	f := k.file
	if rest, ok := strings.CutSuffix(text, "]"); ok {
		return rest + ", " + braces(fields, k.root.Style&yaml.FlowStyle != 0) + "]"
	}
	more := lines(fields, max(k.root.Column-1, 0), 2, f.eol)
	if rest, ok := strings.CutSuffix(text, f.eol); ok {
		return rest + f.eol + more + f.eol
	}
	return text + f.eol + more
}

// fill adds the first entry to an images key without a value.
func (k *overlay) fill(images, entry *yaml.Node, fields []field) error {
	from, to, err := k.file.span(images)
	if err != nil {
		return err
	}
	text := "[" + braces(fields, false) + "]"
	if from == to {
		text = " " + text
	}
	k.file.splices = append(k.file.splices, splice{from, to, text})
	images.Kind, images.Tag, images.Value, images.Style = yaml.SequenceNode, "!!seq", "", yaml.FlowStyle
	images.Content = []*yaml.Node{entry}
	k.made = len(k.file.splices)
	return nil
}

func (k *overlay) flowItem(images *yaml.Node, fields []field) (int, string, error) {
	f := k.file
	json := k.root.Style&yaml.FlowStyle != 0
	end := f.closing(f.skipProperties(f.at(images)))
	if end < 0 {
		return 0, "", f.unclear(images)
	}
	for end > 0 && strings.ContainsRune(" \t\r\n", rune(f.data[end-1])) {
		end--
	}
	text := braces(fields, json)
	if len(images.Content) > 0 {
		text = ", " + text
	}
	return end, text, nil
}

// closing returns the position of the bracket that closes the one at a position, or -1. A bracket in a comment
// leads to a wrong result, which the final comparison refuses.
func (f *file) closing(at int) int {
	depth := 0
	for i := max(at, 0); i < len(f.data); i++ {
		switch f.data[i] {
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				return i
			}
		case '"', '\'':
			end := f.quoted(i, f.data[i])
			if end < 0 {
				return -1
			}
			i = end - 1
		}
	}
	return -1
}

// blockItem adds an item after the last one, whose last line is found from its last scalar.
func (k *overlay) blockItem(images *yaml.Node, fields []field) (int, string, error) {
	f := k.file
	var last *yaml.Node
	keys := 2
	for _, item := range images.Content {
		if item.Line > 0 {
			last = item
		}
		if item.Line > 0 && item.Kind == yaml.MappingNode && item.Style&yaml.FlowStyle == 0 && item.Line == images.Line {
			keys = item.Column - images.Column
		}
	}
	if last == nil || keys < 2 {
		return 0, "", f.unclear(images)
	}
	end, err := f.endOf(last)
	if err != nil {
		return 0, "", err
	}
	return f.endOfLine(end), f.eol + lines(fields, images.Column-1, keys, f.eol), nil
}

// endOf returns the end of a node.
func (f *file) endOf(n *yaml.Node) (int, error) {
	switch {
	case n.Kind == yaml.AliasNode:
		return f.at(n), nil
	case n.Kind == yaml.ScalarNode:
		_, end, err := f.span(n)
		return end, err
	case n.Style&yaml.FlowStyle != 0:
		if end := f.closing(f.skipProperties(f.at(n))); end >= 0 {
			return end, nil
		}
	default:
		for i := len(n.Content) - 1; i >= 0; i-- {
			if n.Content[i].Line > 0 {
				return f.endOf(n.Content[i])
			}
		}
	}
	return 0, f.unclear(n)
}
