package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// MaxFile is the maximum input size of Parse. The cost of parsing grows with the size.
const MaxFile = 16 << 20

// Parse parses the objects of one file: YAML with one or more documents, or a sequence of JSON values. It skips
// empty documents and flattens lists. source is the name of the file in errors, which are of type [*Error]. It
// returns the first error and no objects with it.
func Parse(source string, data []byte) ([]Object, error) {
	p := parser{source: source}
	data, err := p.checkEncoding(data)
	if err != nil {
		return nil, err
	}
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
		docs, err := splitJSON(data)
		if err == nil {
			return p.objects(docs, decodeJSON)
		}
		if strings.HasSuffix(source, ".json") {
			return nil, &Error{Source: source, Document: len(docs) + 1, Line: jsonErrorLine(data, err), Problem: "not valid JSON: " + err.Error()}
		}
		// A YAML file may start with a flow mapping.
	}
	return p.objects(splitDocuments(endLine(data)), decodeYAML)
}

// endLine adds a missing line break at the end. Without it, a block scalar at the end has one line break less
// than in kubectl and helm.
func endLine(data []byte) []byte {
	if len(data) == 0 || data[len(data)-1] == '\n' {
		return data
	}
	return append(data[:len(data):len(data)], '\n')
}

type parser struct {
	source string
	many   bool // more than one document
}

func (p *parser) checkEncoding(data []byte) ([]byte, error) {
	if len(data) > MaxFile {
		return nil, &Error{Source: p.source, Problem: fmt.Sprintf("larger than %d bytes", MaxFile)}
	}
	for _, bom := range []string{"\xff\xfe", "\xfe\xff", "\x00\x00\xfe\xff"} {
		if bytes.HasPrefix(data, []byte(bom)) {
			return nil, &Error{Source: p.source, Problem: "encoded as UTF-16 or UTF-32: save it as UTF-8"}
		}
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(data) {
		return nil, &Error{Source: p.source, Problem: "not valid UTF-8: save it as UTF-8"}
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return nil, &Error{Source: p.source, Line: 1 + bytes.Count(data[:i], []byte("\n")), Problem: "contains a NUL byte: not a text file in UTF-8"}
	}
	return data, nil
}

func (p *parser) objects(docs []document, decode func(document) (any, error)) ([]Object, error) {
	if len(docs) > maxDocuments {
		return nil, &Error{Source: p.source, Problem: fmt.Sprintf("more than %d documents: split it into several files", maxDocuments)}
	}
	p.many = len(docs) > 1
	var out []Object
	for i, doc := range docs {
		var value any
		err := checkWidth(doc)
		if err == nil {
			value, err = decode(doc)
		}
		if err == nil {
			out, err = p.appendValue(out, value, i+1, nil)
		}
		if err == nil {
			continue
		}
		e := &Error{Source: p.source, Document: i + 1, Line: doc.line, Problem: err.Error()}
		var at *lineError
		if errors.As(err, &at) {
			e.Line = at.line
		}
		return nil, e
	}
	return out, nil
}

// appendValue adds the object, or the objects of the list, of one document. path is its position in nested
// lists, counted from 1.
func (p *parser) appendValue(out []Object, value any, doc int, path []int) ([]Object, error) {
	if value == nil {
		return out, nil
	}
	content, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("not a Kubernetes object: expected a map with apiVersion, kind and metadata")
	}
	items, isList, err := listItems(content)
	if err != nil {
		return nil, err
	}
	if isList {
		for i, item := range items {
			if m, ok := item.(map[string]any); ok {
				inheritType(content, m)
			}
			at := append(path[:len(path):len(path)], i+1)
			if out, err = p.appendValue(out, item, doc, at); err != nil {
				return nil, itemError(err, i+1)
			}
		}
		return out, nil
	}
	ref, err := identify(content)
	if err != nil {
		return nil, err
	}
	return append(out, Object{Ref: ref, Source: p.where(doc, path), Content: content}), nil
}

func itemError(err error, item int) error { return fmt.Errorf("item %d: %w", item, err) }

func (p *parser) where(doc int, path []int) string {
	var parts []string
	if p.many {
		parts = append(parts, fmt.Sprintf("document %d", doc))
	}
	for _, i := range path {
		parts = append(parts, fmt.Sprintf("item %d", i))
	}
	if len(parts) == 0 {
		return p.source
	}
	return p.source + " (" + strings.Join(parts, ", ") + ")"
}

// splitJSON splits a stream of JSON values. With an error, it returns the values before it. It stops after one
// value more than the maximum number of documents.
func splitJSON(data []byte) ([]document, error) {
	var docs []document
	dec := json.NewDecoder(bytes.NewReader(data))
	for line, counted := 1, int64(0); ; {
		var raw json.RawMessage
		if err := dec.Decode(&raw); errors.Is(err, io.EOF) {
			return docs, nil
		} else if err != nil {
			return docs, err
		}
		start := dec.InputOffset() - int64(len(raw))
		line += bytes.Count(data[counted:start], []byte("\n"))
		counted = start
		if docs = append(docs, document{line: line, text: raw}); len(docs) > maxDocuments {
			return docs, nil
		}
	}
}

func jsonErrorLine(data []byte, err error) int {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) || syntax.Offset > int64(len(data)) {
		return 1 + bytes.Count(data, []byte("\n"))
	}
	return 1 + bytes.Count(data[:syntax.Offset], []byte("\n"))
}

func decodeJSON(doc document) (any, error) {
	var value any
	strict, err := kjson.UnmarshalStrict(doc.text, &value, kjson.DisallowDuplicateFields)
	if err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	if len(strict) > 0 {
		return nil, strict[0]
	}
	// Encoded again, so that 1.0 is the integer 1, as in YAML and in the API server.
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return decodeCanonical(data)
}

func decodeYAML(doc document) (any, error) {
	if err := checkAliases(doc.text); err != nil {
		return nil, yamlError(doc, err)
	}
	data, err := yaml.YAMLToJSONStrict(doc.text)
	if err != nil {
		return nil, yamlError(doc, err)
	}
	return decodeCanonical(data)
}

// decodeCanonical decodes JSON as the API server does.
func decodeCanonical(data []byte) (any, error) {
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &value); err != nil {
		return nil, err
	}
	return value, nil
}
