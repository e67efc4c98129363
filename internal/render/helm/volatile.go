package helm

import (
	"path"
	"strings"
	"text/template/parse"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
)

// volatile lists the template functions with a different result in each call. Functions for dates use the
// current time for every argument that is not a time, such as a text.
var volatile = map[string]bool{
	"date": true, "dateInZone": true, "date_in_zone": true, "htmlDate": true, "htmlDateInZone": true, "durationRound": true,
	"now": true, "ago": true, "shuffle": true, "uuidv4": true, "bcrypt": true, "htpasswd": true, "encryptAES": true,
	"randAlphaNum": true, "randAlpha": true, "randAscii": true, "randNumeric": true, "randBytes": true, "randInt": true,
	"genPrivateKey": true, "genCA": true, "genCAWithKey": true, "genSelfSignedCert": true, "genSelfSignedCertWithKey": true,
	"genSignedCert": true, "genSignedCertWithKey": true,
}

// unordered lists the functions that return a list in the random order of a map, unless a function of settling
// makes the order irrelevant.
var (
	unordered = map[string]bool{"keys": true, "values": true}
	settling  = map[string]bool{"sortAlpha": true, "len": true, "has": true}
)

// isVolatile reports whether a template that is used calls such a function. In doubt it returns true: a branch
// that is not executed counts, and with tpl so does every text that looks like a template.
func isVolatile(c *chart.Chart, values map[string]any) bool {
	s := scanner{defined: map[string][]parse.Node{}, seen: map[string]bool{}}
	var queue []string
	s.parseChart(c, &queue)
	for len(queue) > 0 && !s.found {
		name := queue[0]
		queue = queue[1:]
		if s.seen[name] {
			continue
		}
		s.seen[name] = true
		for _, node := range s.defined[name] {
			s.walk(node, false)
		}
		queue = append(queue, s.used...)
		s.used = nil
		if s.unknown { // a computed name: it may be any template
			s.unknown = false
			for name := range s.defined {
				queue = append(queue, name)
			}
		}
	}
	if s.tpl && !s.found {
		for _, text := range s.texts {
			s.scanText(text)
		}
		s.scanTexts(values["Values"])
		s.scanFiles(c)
	}
	return s.found || s.unknown && s.anyVolatile()
}

// anyVolatile checks every defined template.
func (s *scanner) anyVolatile() bool {
	for _, nodes := range s.defined {
		for _, node := range nodes {
			s.walk(node, false)
		}
	}
	return s.found
}

// scanner looks for functions in templates.
type scanner struct {
	defined map[string][]parse.Node
	seen    map[string]bool
	used    []string // templates that the visited nodes call
	texts   []string // texts in the visited nodes
	unknown bool     // calls a template with a computed name
	tpl     bool     // calls tpl
	found   bool
}

// parseChart parses the templates of a chart and its subcharts and queues the rendered ones.
func (s *scanner) parseChart(c *chart.Chart, queue *[]string) {
	for _, f := range c.Templates {
		name := path.Join(c.ChartFullPath(), f.Name)
		s.define(name, string(f.Data))
		if base := path.Base(name); !strings.HasPrefix(base, "_") && !strings.HasSuffix(base, "NOTES.txt") && !isLibrary(c) {
			*queue = append(*queue, name)
		}
	}
	for _, sub := range c.Dependencies() {
		s.parseChart(sub, queue)
	}
}

func isLibrary(c *chart.Chart) bool { return strings.EqualFold(c.Metadata.Type, "library") }

// define parses a text. An invalid template has failed before, or is not a template.
func (s *scanner) define(name, text string) {
	trees := map[string]*parse.Tree{}
	t := parse.New(name)
	t.Mode = parse.SkipFuncCheck
	if _, err := t.Parse(text, "", "", trees); err != nil {
		return
	}
	for defined, tree := range trees {
		if tree.Root != nil {
			s.defined[defined] = append(s.defined[defined], tree.Root)
		}
	}
}

// walk visits a node. settled means that the order of its result is irrelevant.
func (s *scanner) walk(node parse.Node, settled bool) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, child := range n.Nodes {
				s.walk(child, false)
			}
		}
	case *parse.ActionNode:
		s.walkPipe(n.Pipe, false)
	case *parse.IfNode:
		s.walkBranch(n.BranchNode)
	case *parse.RangeNode:
		s.walkBranch(n.BranchNode)
	case *parse.WithNode:
		s.walkBranch(n.BranchNode)
	case *parse.TemplateNode:
		s.used = append(s.used, n.Name)
		s.walkPipe(n.Pipe, false)
	case *parse.PipeNode:
		s.walkPipe(n, settled)
	case *parse.ChainNode:
		s.walk(n.Node, settled)
	case *parse.StringNode:
		s.texts = append(s.texts, n.Text)
	case *parse.IdentifierNode:
		s.found = s.found || volatile[n.Ident] || unordered[n.Ident] && !settled
		s.tpl = s.tpl || n.Ident == "tpl"
	}
}

func (s *scanner) walkBranch(n parse.BranchNode) {
	s.walkPipe(n.Pipe, false)
	s.walk(n.List, false)
	s.walk(n.ElseList, false)
}

func (s *scanner) walkPipe(pipe *parse.PipeNode, settled bool) {
	if pipe == nil {
		return
	}
	for _, command := range pipe.Cmds {
		settled = settled || isCall(command, settling)
	}
	for _, command := range pipe.Cmds {
		if isCall(command, map[string]bool{"include": true}) {
			s.include(command)
		}
		for _, arg := range command.Args {
			s.walk(arg, settled)
		}
	}
}

func isCall(command *parse.CommandNode, names map[string]bool) bool {
	name, ok := command.Args[0].(*parse.IdentifierNode)
	return ok && names[name.Ident]
}

func (s *scanner) include(command *parse.CommandNode) {
	if len(command.Args) > 1 {
		if name, ok := command.Args[1].(*parse.StringNode); ok {
			s.used = append(s.used, name.Text)
			return
		}
	}
	s.unknown = true
}

// scanTexts checks every text in values that may be used as a template.
func (s *scanner) scanTexts(value any) {
	switch v := value.(type) {
	case string:
		s.scanText(v)
	case common.Values:
		s.scanTexts(map[string]any(v))
	case map[string]any:
		for _, item := range v {
			s.scanTexts(item)
		}
	case []any:
		for _, item := range v {
			s.scanTexts(item)
		}
	}
}

func (s *scanner) scanFiles(c *chart.Chart) {
	for _, f := range c.Files {
		s.scanText(string(f.Data))
	}
	for _, sub := range c.Dependencies() {
		s.scanFiles(sub)
	}
}

func (s *scanner) scanText(text string) {
	if s.found || !strings.Contains(text, "{{") {
		return
	}
	inner := scanner{defined: map[string][]parse.Node{}}
	inner.define("text", text)
	for _, nodes := range inner.defined {
		for _, node := range nodes {
			inner.walk(node, false)
		}
	}
	s.found = inner.found
	if inner.tpl {
		for _, text := range inner.texts { // inner texts are shorter, so this ends
			s.scanText(text)
		}
	}
	s.unknown = s.unknown || inner.unknown || len(inner.used) > 0
}
