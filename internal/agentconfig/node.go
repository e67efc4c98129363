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

// parser walks one document and collects what is wrong with it.
type parser struct {
	problems []fleet.ConfigFinding
	more     int // problems beside those
	lines    map[string]int
	nodes    int                 // that were looked at, through aliases too
	reported map[*yaml.Node]bool // keys that were: aliases lead to them again and again
}

// value is one place in the document.
type value struct {
	p    *parser
	node *yaml.Node
	path string
}

func (p *parser) problem(field string, line int, format string, args ...any) {
	switch {
	case p.exhausted(): // which says it all
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

// spend counts what a node costs, or makes of the file by being repeated; false when that is too much.
// Then nothing else is said about the file: what is known of it by then is a part.
func (p *parser) spend(node *yaml.Node, text int) bool {
	if p.exhausted() {
		return false
	}
	nodes := p.nodes + 1 + text/textPerNode
	if nodes > maxNodes {
		p.problems, p.more = nil, 0
		p.problem("", node.Line, "the file says more than %d things, each counted as often as aliases and << repeat it, and long texts as several: let them repeat less", maxNodes)
	}
	p.nodes = nodes
	return !p.exhausted()
}

// document returns the only document of a file; false when there is none, which is no mistake, or when
// it cannot be read.
func (p *parser) document(data []byte) (root value, ok bool) {
	defer func() {
		// The parser is not ours, and what it trips over is in Git: it would be there again after a restart.
		if recover() != nil {
			p.problem("", 0, "the file is not YAML: the parser gave up on it")
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
		p.problem("", second.Line, "the file holds more than one document: keep one")
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
		line, _ = strconv.Atoi(m[1]) // 0 when it names none
	}
	p.problem("", line, "the file is not YAML: %s", syntaxLine.ReplaceAllString(err.Error(), ""))
}

// isNull reports whether a document or value is there and says nothing.
func isNull(n *yaml.Node) bool {
	if n.Kind == yaml.DocumentNode {
		return len(n.Content) == 0 || isNull(n.Content[0])
	}
	return n.Kind == 0 || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// resolve follows aliases, and counts: a few bytes of them can stand for very much.
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
	v.problem("must be %s, and is %s", want, typeOf(v.node))
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

// mapping calls read for every entry of a mapping. Keys that are given twice are mistakes.
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

// fields calls the reader of each key that is given. Keys without a reader are mistakes.
func (v value) fields(known map[string]func(value)) {
	v.mapping(func(key string, child value) {
		read, ok := known[key]
		switch {
		case !ok:
			v.p.problem(child.path, v.p.lines[child.path], "is not known here; known are %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case isNull(child.node): // says nothing: the default holds
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

// maxMerges bounds how deep "<<" is followed: it may lead in circles.
const maxMerges = 8

// entries are the keys of a mapping, those that "<<" brings in after its own.
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
			v.p.badKey(key, v.path, "a key must be text, and is %s", typeOf(key))
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

// badKey reports a key once, however many aliases lead to it.
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
