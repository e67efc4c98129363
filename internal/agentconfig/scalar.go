package agentconfig

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// items calls read for every item of a list.
func (v value) items(read func(i int, item value)) {
	v, ok := v.resolve()
	if !ok {
		return
	}
	if v.node.Kind != yaml.SequenceNode {
		v.wrongType("a list")
		return
	}
	for i, node := range v.node.Content {
		if v.p.exhausted() {
			return
		}
		item := value{v.p, node, v.path + "[" + strconv.Itoa(i) + "]"}
		v.p.lines[item.path] = node.Line
		read(i, item)
	}
}

// scalar returns the text of a value of the given type.
func (v value) scalar(want, tag string) (string, bool) {
	v, ok := v.resolve()
	if !ok {
		return "", false
	}
	if v.node.Kind != yaml.ScalarNode || v.node.ShortTag() != tag {
		if v.node.Kind == yaml.ScalarNode && tag == "!!str" && !isNull(v.node) {
			want += " (put it into quotes)"
		}
		v.wrongType(want)
		return "", false
	}
	return v.node.Value, true
}

// text reads a text into to. It may be empty.
func text(to *string) func(value) {
	return func(v value) {
		if s, ok := v.scalar("text", "!!str"); ok {
			*to = s
		}
	}
}

// word reads a text that is not empty.
func word(to *string) func(value) {
	return func(v value) {
		s, ok := v.scalar("text", "!!str")
		if ok && strings.TrimSpace(s) == "" {
			v.problem("is empty")
			return
		}
		*to = s
	}
}

// oneOf reads one of the allowed words.
func oneOf(to *string, allowed ...string) func(value) {
	return func(v value) {
		s, ok := v.scalar("text", "!!str")
		if !ok {
			return
		}
		if !slices.Contains(allowed, s) {
			var shown []string
			for _, a := range allowed {
				if a != "" {
					shown = append(shown, a)
				}
			}
			v.problem("%q is not one of %s", s, strings.Join(shown, ", "))
			return
		}
		*to = s
	}
}

// truths are the booleans of YAML 1.1, which GitLab's parser accepts.
var truths = map[string]bool{
	"true": true, "yes": true, "on": true, "false": false, "no": false, "off": false,
}

// boolean reads true or false.
func boolean(to *bool) func(value) {
	return func(v value) {
		v, ok := v.resolve()
		if !ok {
			return
		}
		truth, known := truths[strings.ToLower(v.node.Value)]
		if v.node.Kind != yaml.ScalarNode || !known || v.node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
			v.wrongType("true or false")
			return
		}
		*to = truth
	}
}

// number reads an integer.
func number(to *int) func(value) {
	return func(v value) {
		s, ok := v.scalar("a whole number", "!!int")
		if !ok {
			return
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			v.problem("%s is out of range", s)
			return
		}
		*to = n
	}
}

// words reads a list of texts that are not empty.
func words(to *[]string) func(value) {
	return func(v value) {
		v.items(func(_ int, item value) {
			var s string
			word(&s)(item)
			*to = append(*to, s)
		})
	}
}

// texts reads a mapping from text to text.
func texts(to *map[string]string) func(value) {
	return func(v value) {
		*to = map[string]string{}
		v.mapping(func(key string, child value) {
			if s, ok := child.scalar("text", "!!str"); ok {
				(*to)[key] = s
			}
		})
	}
}

// duration reads a duration in Go's format.
func duration(to *time.Duration) func(value) {
	return func(v value) {
		s, ok := v.scalar("a duration such as 90s or 5m", "!!str")
		if !ok {
			return
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			v.problem("%q is not a duration such as 90s, 5m or 1h30m", s)
			return
		}
		*to = d
	}
}

var seconds = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,3})?s$`)

// secondsOnly reads a duration in the only format that GitLab accepts.
func secondsOnly(to *time.Duration) func(value) {
	return func(v value) {
		s, ok := v.scalar(`a duration such as "3600s"`, "!!str")
		if !ok {
			return
		}
		if !seconds.MatchString(s) {
			v.problem(`%q is not a duration in seconds, such as "3600s"`, s)
			return
		}
		*to, _ = time.ParseDuration(s) // it matches the pattern, so it parses
	}
}
