package render

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// placeholder is what stands between the braces of ${…}: a name, and what is done with the value. The forms are those
// that Flux documents, and work alike.
//
//	${name}              the value; it has to be defined
//	${name:=text}        the value, or text where it is not defined or empty; the same with :- and - and =
//	${name:2}            the value from its third character on; from the end when negative
//	${name:2:3}          three characters of that
//	${name/old/new}      the value with the first old replaced; // for each, /# at its beginning, /% at its end
type placeholder struct {
	name, op string
	args     []string // may hold placeholders themselves
}

// maxNested is how deep placeholders may be inside of each other.
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

// parsePlaceholder reads what stands between braces. It is not ok when that is none of the forms: a shell has more of
// them, and scripts are left alone.
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

// cutSlash cuts at the first slash that no backslash precedes.
func cutSlash(text string) []string {
	for i := range len(text) {
		if text[i] == '/' && (i == 0 || text[i-1] != '\\') {
			return []string{strings.ReplaceAll(text[:i], `\/`, "/"), strings.ReplaceAll(text[i+1:], `\/`, "/")}
		}
	}
	return []string{strings.ReplaceAll(text, `\/`, "/"), ""}
}

// placeholderEnds finds for each ${ of a text the brace that closes it.
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

var errGrowth = errors.New("with the values of variables the objects are larger than is allowed")

// expand returns what a placeholder stands for.
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

// grow counts what is put in. It is asked before a text is put together: a small file of many placeholders must not
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

// cutRunes returns the characters of a text from a position on, as many as length says; "" means all.
func cutRunes(text, position, length string) string {
	runes := []rune(text)
	from, _ := strconv.Atoi(position) // a few digits, see placeholderCut
	if from < 0 {
		from = max(len(runes)+from, 0)
	}
	runes = runes[min(from, len(runes)):]
	if n, err := strconv.Atoi(length); err == nil {
		runes = runes[:min(n, len(runes))]
	}
	return string(runes)
}
