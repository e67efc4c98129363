package render

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// placeholder is the content of ${…}: a name, and an operation on its value. The forms are those that Flux
// documents, with the same semantics.
//
//	${name}              the value; the variable must be defined
//	${name:=text}        the value, or text if it is not defined or empty; the same with :- and - and =
//	${name:2}            the value from its third character; from the end if negative
//	${name:2:3}          three characters of that
//	${name/old/new}      the value with the first old replaced; // for each, /# at the start, /% at the end
type placeholder struct {
	name, op string
	args     []string // may contain placeholders
}

// maxNested limits the nesting of placeholders.
const maxNested = 10

var (
	placeholderName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)
	placeholderCut  = regexp.MustCompile(`^:\s*(-?[0-9]{1,9})(?::([0-9]{1,9}))?$`)
)

// The operators of a placeholder, longer ones first.
var (
	defaultOps = []string{":=", ":-", "=", "-"}
	replaceOps = []string{"//", "/#", "/%", "/"}
)

const opCut = ":"

// parsePlaceholder parses the content of the braces. ok is false for other forms: shells have more of them, and
// scripts must not change.
func parsePlaceholder(text string) (p placeholder, ok bool) {
	p.name = placeholderName.FindString(text)
	rest := text[len(p.name):]
	if p.name == "" || rest == "" {
		return p, p.name != ""
	}
	for _, op := range defaultOps {
		if arg, ok := strings.CutPrefix(rest, op); ok {
			p.op, p.args = op, []string{arg}
			return p, true
		}
	}
	if match := placeholderCut.FindStringSubmatch(rest); match != nil {
		p.op, p.args = opCut, match[1:]
		return p, true
	}
	for _, op := range replaceOps {
		if arg, ok := strings.CutPrefix(rest, op); ok {
			p.op, p.args = op, cutSlash(arg)
			return p, true
		}
	}
	return p, false
}

// cutSlash cuts at the first slash without a backslash before it.
func cutSlash(text string) []string {
	for i := range len(text) {
		if text[i] == '/' && (i == 0 || text[i-1] != '\\') {
			return []string{strings.ReplaceAll(text[:i], `\/`, "/"), strings.ReplaceAll(text[i+1:], `\/`, "/")}
		}
	}
	return []string{strings.ReplaceAll(text, `\/`, "/"), ""}
}

// placeholderEnds finds the closing brace of each ${ in a text.
func placeholderEnds(text string) map[int]int {
	ends := map[int]int{}
	var open []int
	for i := range len(text) {
		switch {
		case strings.HasPrefix(text[i:], "${"):
			open = append(open, i)
		case text[i] == '}' && len(open) > 0:
			ends[open[len(open)-1]] = i
			open = open[:len(open)-1]
		}
	}
	return ends
}

var errGrowth = errors.New("after the replacement of variables, the objects exceed the size limit")

// expand returns the value of a placeholder.
func (s *substitution) expand(p placeholder) (string, error) {
	value, defined := s.variables[p.name]
	var err error
	switch {
	case slices.Contains(defaultOps, p.op):
		if value == "" {
			return s.text(p.args[0])
		}
	case !defined:
		return "", fmt.Errorf("the variable %[1]q is not defined: give it a value in source.variables, write ${%[1]s:=text} for a default, or $${%[1]s} to keep the text", p.name)
	case p.op == opCut:
		value = cutRunes(value, p.args[0], p.args[1])
	case p.op != "":
		if value, err = s.replace(value, p); err != nil {
			return "", err
		}
	}
	return value, s.grow(len(value))
}

// grow counts inserted text. It is called before a text is built: a small file with many placeholders must not
// become a large one.
func (s *substitution) grow(size int) error {
	if s.left -= int64(size); s.left < 0 {
		return errGrowth
	}
	return nil
}

func (s *substitution) replace(value string, p placeholder) (string, error) {
	old, err := s.text(p.args[0])
	if err != nil {
		return "", err
	}
	replacement, err := s.text(p.args[1])
	if err != nil || old == "" {
		return value, err
	}
	switch p.op {
	case "/#":
		if rest, ok := strings.CutPrefix(value, old); ok {
			return replacement + rest, nil
		}
	case "/%":
		if rest, ok := strings.CutSuffix(value, old); ok {
			return rest + replacement, nil
		}
	case "/":
		return strings.Replace(value, old, replacement, 1), nil
	default:
		if int64(strings.Count(value, old))*int64(len(replacement)) > s.left {
			return "", errGrowth
		}
		return strings.ReplaceAll(value, old, replacement), nil
	}
	return value, nil
}

// cutRunes returns the characters of a text from a position, limited to length; "" means all.
func cutRunes(text, position, length string) string {
	runes := []rune(text)
	from, _ := strconv.Atoi(position) // only a few digits, see placeholderCut
	if from < 0 {
		from = max(len(runes)+from, 0)
	}
	runes = runes[min(from, len(runes)):]
	if n, err := strconv.Atoi(length); err == nil {
		runes = runes[:min(n, len(runes))]
	}
	return string(runes)
}
