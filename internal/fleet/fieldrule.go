package fleet

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// FieldRule names a field of some objects. It is written
//
//	KIND[/NAME]:POINTER
//
// where KIND is as in Limits ("Deployment.apps", "ConfigMap", "*.example.com", "*"), NAME may use *
// and POINTER is a JSON pointer whose steps may be *: "Deployment.apps/web-*:/spec/replicas",
// "*:/metadata/annotations/example.com~1seen", "Deployment.apps:/spec/template/spec/containers/*/image".
// A step into a list is an index or *. A rule covers everything below the field it names.
type FieldRule struct {
	kind  Limits
	name  string
	steps []string // unescaped; "*" is any
}

// ParseFieldRule parses a rule.
func ParseFieldRule(text string) (FieldRule, error) {
	if len(text) > maxFieldRule {
		return FieldRule{}, fmt.Errorf("a rule has at most %[2]d characters, not %[1]d", len(text), maxFieldRule)
	}
	object, pointer, ok := strings.Cut(text, ":")
	if !ok || !strings.HasPrefix(pointer, "/") || pointer == "/" {
		return FieldRule{}, fmt.Errorf(`%q is not a rule: write KIND[/NAME]:/field/…, such as "Deployment.apps/web:/spec/replicas"`, text)
	}
	kind, name, named := strings.Cut(object, "/")
	if !kindPattern.MatchString(kind) {
		return FieldRule{}, fmt.Errorf(`%q in rule %q is not a kind: write "ConfigMap", "Deployment.apps", "*.example.com" or "*"`, kind, text)
	}
	if _, err := path.Match(name, ""); err != nil || named && name == "" {
		return FieldRule{}, fmt.Errorf("%q in rule %q is not a name; only * has a meaning in it", name, text)
	}
	steps := strings.Split(pointer[1:], "/")
	for i, step := range steps {
		if step == "" {
			return FieldRule{}, fmt.Errorf("rule %q has an empty step in %q", text, pointer)
		}
		steps[i] = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
	}
	return FieldRule{kind: Limits{Kinds: []string{kind}}, name: name, steps: steps}, nil
}

// Matches reports whether the rule applies to an object.
func (r FieldRule) Matches(ref ObjectRef) bool {
	if !r.kind.allowsKind(ref) {
		return false
	}
	if r.name == "" {
		return true
	}
	ok, err := path.Match(r.name, ref.Name)
	return err == nil && ok
}

// Remove removes the field from an object, in place. Lists keep their length: a rule removes fields inside an
// item, and sets a whole item to nil.
func (r FieldRule) Remove(object map[string]any) { remove(object, r.steps) }

func remove(value any, steps []string) {
	step, last := steps[0], len(steps) == 1
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			switch {
			case step != "*" && step != key:
			case last:
				delete(value, key)
			default:
				remove(value[key], steps[1:])
			}
		}
	case []any:
		for i := range value {
			switch {
			case step != "*" && step != strconv.Itoa(i):
			case last:
				value[i] = nil
			default:
				remove(value[i], steps[1:])
			}
		}
	}
}
