package agentconfig

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// parser walks one document and collects its errors.
type parser struct {
	problems []fleet.ConfigFinding
	more     int // findings that are not listed
	lines    map[string]int
	nodes    int                 // nodes visited, including those reached through aliases
	reported map[*yaml.Node]bool // keys that are reported already; aliases can lead to them repeatedly
}

// value is one node of the document, with its path.
type value struct {
	p    *parser
	node *yaml.Node
	path string
}

func (p *parser) problem(field string, line int, format string, args ...any) {
	switch {
	case p.exhausted(): // the error about the limit is sufficient
		return
	case len(p.problems) == maxProblems:
		p.more++
		return
	}
	p.problems = append(p.problems, fleet.ConfigFinding{Field: field, Line: line, Message: fmt.Sprintf(format, args...)})
}

func (p *parser) result() error {
	if len(p.problems) == 0 {
		return nil
	}
	refused := Refuse(p.problems)
	refused.More += p.more
	return refused
}

func (p *parser) exhausted() bool { return p.nodes > maxNodes }

// spend counts the cost of a node, including repetition through aliases. It returns false above the limit. Then
// the file has only this error, because the result is incomplete.
func (p *parser) spend(node *yaml.Node, text int) bool {
	if p.exhausted() {
		return false
	}
	nodes := p.nodes + 1 + text/textPerNode
	if nodes > maxNodes {
		p.problems, p.more = nil, 0
		p.problem("", node.Line, "the file has more than %d values, counting each repetition by aliases and << and counting long texts several times: reduce the repetition", maxNodes)
	}
	p.nodes = nodes
	return !p.exhausted()
}

// document returns the only document of a file. It returns false for an empty file, which is not an error, and
// for an unreadable file.
func (p *parser) document(data []byte) (root value, ok bool) {
	defer func() {
		// A panic of the third-party parser must not stop the server: the file would still be in Git after a
		// restart.
		if recover() != nil {
			p.problem("", 0, "the file is not YAML: the parser failed")
			ok = false
		}
	}()
	p.lines, p.reported = map[string]int{}, map[*yaml.Node]bool{}
	if len(data) > MaxSize {
		p.problem("", 0, "the file has %d bytes, and %d are allowed", len(data), MaxSize)
		return value{}, false
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(data)))
	var node, second yaml.Node
	switch err := decoder.Decode(&node); {
	case errors.Is(err, io.EOF):
		return value{}, false
	case err != nil:
		p.syntax(err)
		return value{}, false
	}
	switch err := decoder.Decode(&second); {
	case err == nil && !isNull(&second):
		p.problem("", second.Line, "the file contains more than one document: keep one")
		return value{}, false
	case err != nil && !errors.Is(err, io.EOF):
		p.syntax(err)
		return value{}, false
	}
	if isNull(&node) {
		return value{}, false
	}
	return value{p, node.Content[0], ""}, true
}

var syntaxLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func (p *parser) syntax(err error) {
	line := 0
	if m := syntaxLine.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1]) // 0 if there is none
	}
	p.problem("", line, "the file is not YAML: %s", syntaxLine.ReplaceAllString(err.Error(), ""))
}

// isNull reports whether a document or value is present but null.
func isNull(n *yaml.Node) bool {
	if n.Kind == yaml.DocumentNode {
		return len(n.Content) == 0 || isNull(n.Content[0])
	}
	return n.Kind == 0 || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// resolve follows aliases and counts them: a few bytes of aliases can expand to very many nodes.
func (v value) resolve() (value, bool) {
	for v.node.Kind == yaml.AliasNode {
		if !v.p.spend(v.node, 0) {
			return v, false
		}
		v.node = v.node.Alias
	}
	return v, v.p.spend(v.node, 0)
}

func (v value) problem(format string, args ...any) { v.p.problem(v.path, v.node.Line, format, args...) }

func (v value) wrongType(want string) {
	v.problem("must be %s, but is %s", want, typeOf(v.node))
}

func typeOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "empty"
	}
	switch n.ShortTag() {
	case "!!str":
		return "text"
	case "!!bool":
		return "true or false"
	case "!!int", "!!float":
		return "a number"
	default:
		return n.ShortTag()
	}
}

// mapping calls read for every entry of a mapping. Duplicate keys are errors.
func (v value) mapping(read func(key string, child value)) {
	v, ok := v.resolve()
	if !ok {
		return
	}
	if v.node.Kind != yaml.MappingNode {
		v.wrongType("a mapping")
		return
	}
	for _, e := range v.entries(nil, 0) {
		if v.p.exhausted() {
			return
		}
		child := value{v.p, e.value, join(v.path, e.key)}
		v.p.lines[child.path] = e.line
		read(e.key, child)
	}
}

// fields calls the reader of each key that is present. Keys without a reader are errors.
func (v value) fields(known map[string]func(value)) {
	v.mapping(func(key string, child value) {
		read, ok := known[key]
		switch {
		case !ok:
			v.p.problem(child.path, v.p.lines[child.path], "is not a known key: use one of %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case isNull(child.node): // null: the default applies
		default:
			read(child)
		}
	})
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

type entry struct {
	key   string
	line  int
	value *yaml.Node
}

// maxMerges limits the depth of "<<", which can be circular.
const maxMerges = 8

// entries returns the keys of a mapping: its own keys first, then those merged with "<<".
func (v value) entries(taken map[string]bool, depth int) []entry {
	if taken == nil {
		taken = map[string]bool{}
	}
	var out []entry
	var merges []*yaml.Node
	own := map[string]bool{}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key, val := v.node.Content[i], v.node.Content[i+1]
		if !v.p.spend(key, len(key.Value)) {
			return nil
		}
		switch {
		case key.ShortTag() == "!!merge":
			merges = append(merges, val)
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			v.p.badKey(key, v.path, "a key must be text, but is %s", typeOf(key))
		case own[key.Value]:
			v.p.badKey(key, join(v.path, key.Value), "is given twice")
		default:
			own[key.Value] = true
			if !taken[key.Value] {
				taken[key.Value] = true
				out = append(out, entry{key.Value, key.Line, val})
			}
		}
	}
	for _, m := range merges {
		out = append(out, v.merged(m, taken, depth)...)
	}
	return out
}

// badKey reports a key once, even if several aliases lead to it.
func (p *parser) badKey(key *yaml.Node, field, format string, args ...any) {
	if !p.reported[key] {
		p.reported[key] = true
		p.problem(field, key.Line, format, args...)
	}
}

func (v value) merged(node *yaml.Node, taken map[string]bool, depth int) []entry {
	m, ok := value{v.p, node, v.path}.resolve()
	if !ok {
		return nil
	}
	if depth >= maxMerges {
		m.problem("<< is followed at most %d levels deep", maxMerges)
		return nil
	}
	switch m.node.Kind {
	case yaml.MappingNode:
		return m.entries(taken, depth+1)
	case yaml.SequenceNode:
		var out []entry
		for _, item := range m.node.Content {
			if v.p.exhausted() {
				break
			}
			out = append(out, v.merged(item, taken, depth+1)...)
		}
		return out
	default:
		m.problem("<< must name a mapping")
		return nil
	}
}
