package imageset

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// splice replaces data[from:to].
type splice struct {
	from, to int
	text     string
}

// span returns the position of the text of a scalar, with its quotes.
func (f *file) span(n *yaml.Node) (from, to int, err error) {
	if was, ok := f.spans[n]; ok {
		return was.from, was.to, nil // it already has its new value
	}
	at := f.skipProperties(f.at(n))
	if at < 0 || at > len(f.data) {
		return 0, 0, f.unclear(n)
	}
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		to = f.quoted(at, '"')
	case n.Style&yaml.SingleQuotedStyle != 0:
		to = f.quoted(at, '\'')
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return f.block(n, at)
	default:
		to = at + len(n.Value)
		if to > len(f.data) || string(f.data[at:to]) != n.Value {
			return 0, 0, f.unclear(n)
		}
	}
	if to < 0 {
		return 0, 0, f.unclear(n)
	}
	return at, to, nil
}

func (f *file) unclear(n *yaml.Node) error {
	return problem(f.path, "line %d has a form that cannot be changed safely: change it yourself", n.Line)
}

// skipProperties skips the anchor and the tag before a value.
func (f *file) skipProperties(at int) int {
	for at >= 0 && at < len(f.data) && (f.data[at] == '&' || f.data[at] == '!') {
		for at < len(f.data) && !strings.ContainsRune(" \t\r\n", rune(f.data[at])) {
			at++
		}
		at = f.skipBlank(at)
	}
	return at
}

// quoted returns the end of a quoted text that starts at a position, or -1.
func (f *file) quoted(at int, quote byte) int {
	if at >= len(f.data) || f.data[at] != quote {
		return -1
	}
	for i := at + 1; i < len(f.data); i++ {
		switch {
		case quote == '"' && f.data[i] == '\\':
			i++
		case f.data[i] == quote && quote == '\'' && i+1 < len(f.data) && f.data[i+1] == quote:
			i++
		case f.data[i] == quote:
			return i + 1
		}
	}
	return -1
}

// block returns the position of the only line of a block scalar.
func (f *file) block(n *yaml.Node, at int) (from, to int, err error) {
	text := strings.TrimSpace(n.Value)
	from = f.endOfLine(at)
	for from < len(f.data) && strings.ContainsRune(" \t\r\n", rune(f.data[from])) {
		from++
	}
	to = from + len(text)
	if text == "" || to > len(f.data) || string(f.data[from:to]) != text {
		return 0, 0, f.unclear(n)
	}
	return from, to, nil
}

// replace sets a scalar. Setting the same value twice has no further effect.
func (f *file) replace(n *yaml.Node, value string) error {
	if was, ok := f.set[n]; ok {
		if was != value {
			return problem(f.path, "line %d would become both %q and %q: the images share it by an anchor", n.Line, was, value)
		}
		return nil
	}
	from, to, err := f.span(n)
	if err != nil {
		return err
	}
	f.set[n], f.spans[n] = value, splice{from: from, to: to}
	if strings.TrimSpace(n.Value) == value && !needsQuotes(value, n) {
		return nil
	}
	text := encode(n.Style, value)
	if from == to && from > 0 && f.data[from-1] == ':' {
		text = " " + text
	}
	f.splices = append(f.splices, splice{from, to, text})
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		value = strings.Replace(n.Value, strings.TrimSpace(n.Value), value, 1)
	}
	n.Value, n.Tag = value, "!!str"
	return nil
}

// needsQuotes reports whether a plain scalar would parse as something other than the text.
func needsQuotes(value string, n *yaml.Node) bool { return n.ShortTag() != "!!str" && value != "" }

// encode writes a value in the style of the scalar that it replaces. Values are images and parts of images,
// which need no escaping in quotes.
func encode(style yaml.Style, value string) string {
	switch {
	case style&yaml.SingleQuotedStyle != 0:
		return "'" + value + "'"
	case style&yaml.DoubleQuotedStyle != 0, style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 && !isText(value):
		return `"` + value + `"`
	}
	return value
}

// numberLike matches texts that some parsers read as a number, such as the start of a commit.
var numberLike = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$`)

// isText reports whether every parser reads a plain scalar as a string: 1.10 and 12e3 are numbers, and older
// parsers read on and off as booleans.
func isText(value string) bool {
	switch strings.ToLower(value) {
	case "", "y", "n", "yes", "no", "on", "off":
		return false
	}
	n := yaml.Node{Kind: yaml.ScalarNode, Value: value}
	return n.ShortTag() == "!!str" && !numberLike.MatchString(value) && !strings.ContainsAny(value[:1], "@`%&*!|>'\"#-?:,[]{}")
}

// finish returns the new content, or nil if nothing changes. It compares the result with the original to verify
// that nothing else changed.
func (f *file) finish() ([]byte, error) {
	if len(f.splices) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(f.splices, func(a, b splice) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	var out bytes.Buffer
	at := 0
	for _, s := range f.splices {
		if s.from < at {
			return nil, problem(f.path, "two of the changes affect the same place: make them one after another")
		}
		out.Write(f.data[at:s.from])
		out.WriteString(s.text)
		at = s.to
	}
	out.Write(f.data[at:])
	docs, err := parse(out.Bytes())
	if err != nil || !slices.EqualFunc(docs, f.docs, same) {
		return nil, problem(f.path, "the file has a form that cannot be changed safely: change it yourself")
	}
	return out.Bytes(), nil
}

// same reports whether two nodes have the same content, independent of position and style.
func same(a, b *yaml.Node) bool {
	return a.Kind == b.Kind && a.ShortTag() == b.ShortTag() && a.Value == b.Value && a.Anchor == b.Anchor &&
		slices.EqualFunc(a.Content, b.Content, same)
}
