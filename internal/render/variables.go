package render

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/manifest"
)

// fluxSubstitute is the annotation that excludes objects from the substitution of Flux.
const fluxSubstitute = "kustomize.toolkit.fluxcd.io/substitute"

// substitute replaces placeholders in the string values of objects. Keys and the structure of an object do not
// change: a string stays a string.
func substitute(objects []manifest.Object, variables map[string]string, limit int64) ([]manifest.Object, error) {
	s := substitution{variables: variables, left: limit}
	out := make([]manifest.Object, len(objects))
	for i, o := range objects {
		if annotationOf(o, fluxSubstitute) == "disabled" {
			out[i] = o
			continue
		}
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

// reread identifies an object again, because its name may have contained a placeholder.
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
	left      int64 // bytes that may still be inserted
	depth     int   // of placeholders in placeholders
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

// text returns a text with its placeholders replaced. A dollar sign without a placeholder stays, and $${name}
// becomes the text ${name}.
func (s *substitution) text(text string) (string, error) {
	if !strings.Contains(text, "${") {
		return text, nil
	}
	if s.depth++; s.depth > maxNested {
		return "", fmt.Errorf("placeholders are nested more than %d deep", maxNested)
	}
	defer func() { s.depth-- }()
	var out strings.Builder
	done := 0
	ends := placeholderEnds(text)
	for start := 0; start < len(text); start++ {
		end, ok := ends[start]
		if !ok {
			continue
		}
		p, ok := parsePlaceholder(text[start+2 : end])
		if !ok {
			continue
		}
		if start > done && text[start-1] == '$' {
			out.WriteString(text[done:start-1] + text[start:end+1])
		} else {
			value, err := s.expand(p)
			if err != nil {
				return "", err
			}
			out.WriteString(text[done:start] + value)
		}
		start, done = end, end+1
	}
	out.WriteString(text[done:])
	return out.String(), nil
}

// writeVariables adds variables to the input of a key.
func writeVariables(w io.Writer, variables map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		fmt.Fprintf(w, "variable %q %q\n", name, variables[name])
	}
}
