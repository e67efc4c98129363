package render

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/manifest"
)

// placeholder is ${name}, or $${name}, which stands for the text ${name}. Anything else that begins
// with a dollar sign is left as it is.
var placeholder = regexp.MustCompile(`\$?\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// substitute replaces placeholders in the string values of objects. Keys and the shape of an object
// stay as they are, whatever the values hold: a string becomes a string.
func substitute(objects []manifest.Object, variables map[string]string, limit int64) ([]manifest.Object, error) {
	s := substitution{variables: variables, left: limit}
	out := make([]manifest.Object, len(objects))
	for i, o := range objects {
		content, err := s.value(o.Content)
		if err != nil {
			return nil, &manifest.Error{Source: o.Source, Problem: err.Error()}
		}
		if out[i], err = reread(o.Source, content); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// reread finds out anew what an object is, since a placeholder may have been part of its name.
func reread(source string, content any) (manifest.Object, error) {
	data, err := json.Marshal(content)
	if err != nil {
		return manifest.Object{}, fmt.Errorf("encoding an object of %s: %w", source, err)
	}
	parsed, err := manifest.Parse(source, data)
	if err != nil {
		return manifest.Object{}, err
	}
	if len(parsed) != 1 {
		return manifest.Object{}, &manifest.Error{Source: source, Problem: "a variable may not turn an object into a list"}
	}
	return parsed[0], nil
}

type substitution struct {
	variables map[string]string
	left      int64 // how many bytes may still be put in
}

// value returns a copy of v with its placeholders replaced.
func (s *substitution) value(v any) (any, error) {
	switch v := v.(type) {
	case string:
		return s.text(v)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			var err error
			if out[i], err = s.value(item); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			var err error
			if out[key], err = s.value(v[key]); err != nil {
				return nil, err
			}
		}
		return out, nil
	default:
		return v, nil
	}
}

func (s *substitution) text(text string) (string, error) {
	if !strings.Contains(text, "${") {
		return text, nil
	}
	undefined := ""
	out := placeholder.ReplaceAllStringFunc(text, func(match string) string {
		if strings.HasPrefix(match, "$$") {
			return match[1:]
		}
		name := match[2 : len(match)-1]
		value, ok := s.variables[name]
		if !ok && undefined == "" {
			undefined = name
		}
		// Checked by the growth, and before it is put together: a small file of many placeholders must
		// not become a large one.
		if s.left -= int64(len(value)); s.left < 0 {
			return ""
		}
		return value
	})
	switch {
	case undefined != "":
		return "", fmt.Errorf("the variable %q is not defined: give it a value in source.variables, or write $${%s} to keep the text", undefined, undefined)
	case s.left < 0:
		return "", fmt.Errorf("with the values of variables the objects are larger than is allowed")
	}
	return out, nil
}

// writeVariables adds variables to what a key is a hash of.
func writeVariables(w io.Writer, variables map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		fmt.Fprintf(w, "variable %q %q\n", name, variables[name])
	}
}
