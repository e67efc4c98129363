package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	kubejson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// The names of formats. JSONPath has its template after an equals sign.
const (
	TableFormat = "table"
	WideFormat  = "wide"
	JSON        = "json"
	YAML        = "yaml"
	Name        = "name"
	JSONPath    = "jsonpath"
)

// Formats are all formats, as a user writes them.
var Formats = []string{TableFormat, WideFormat, JSON, YAML, Name, JSONPath + "="}

// Format says how a value is printed.
type Format struct {
	name string
	path *jsonpath.JSONPath
}

// ParseFormat reads the value of the flag --output, which must be one of allowed. Empty means a table.
func ParseFormat(text string, allowed []string) (Format, error) {
	if text == "" {
		text = TableFormat
	}
	name, template, isPath := strings.Cut(text, "=")
	if isPath {
		name += "="
	}
	if !slices.Contains(allowed, name) {
		return Format{}, fmt.Errorf("output format %q is not supported here", text)
	}
	if !isPath {
		return Format{name: name}, nil
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(relaxed(template)); err != nil {
		return Format{}, fmt.Errorf("parsing the JSONPath template %q: %w", template, err)
	}
	return Format{name: JSONPath, path: path}, nil
}

var (
	braced   = regexp.MustCompile(`^\{\.?([^{}]+)\}$`)
	unbraced = regexp.MustCompile(`^\.?([^{}]+)$`)
)

// relaxed adds the braces and the dot that kubectl lets a user leave out of a single expression.
func relaxed(template string) string {
	for _, form := range []*regexp.Regexp{braced, unbraced} {
		if found := form.FindStringSubmatch(template); found != nil {
			return "{." + strings.TrimPrefix(found[1], ".") + "}"
		}
	}
	return template
}

// IsTable reports whether the format is a table, wide or not.
func (f Format) IsTable() bool { return f.name == TableFormat || f.name == WideFormat }

// IsWide reports whether the format is a wide table.
func (f Format) IsWide() bool { return f.name == WideFormat }

// IsName reports whether only names are printed.
func (f Format) IsName() bool { return f.name == Name }

// IsYAML reports whether the format is YAML.
func (f Format) IsYAML() bool { return f.name == YAML }

// Encode prints a value as JSON, as YAML or by a JSONPath template.
func (f Format) Encode(w io.Writer, v any) error {
	text, err := encodeJSON(v)
	if err != nil {
		return err
	}
	switch f.name {
	case JSONPath:
		var generic any
		if err := kubejson.Unmarshal(text, &generic); err != nil {
			return fmt.Errorf("encoding the answer: %w", err)
		}
		if err := f.path.Execute(w, generic); err != nil {
			return fmt.Errorf("executing the JSONPath template: %w", err)
		}
		return nil
	case YAML:
		if text, err = yaml.JSONToYAML(text); err != nil {
			return fmt.Errorf("encoding the answer: %w", err)
		}
	}
	_, err = w.Write(text)
	return err
}

func encodeJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding the answer: %w", err)
	}
	return out.Bytes(), nil
}
