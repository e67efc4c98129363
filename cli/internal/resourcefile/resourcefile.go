// Package resourcefile is the form of Kedge's resources in YAML files: apiVersion, kind, metadata and spec, as in
// Kubernetes. It reads and writes text, and knows neither the kinds nor a server.
package resourcefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// APIVersion is the version of the form. A document may leave it out.
const APIVersion = "kedge.dev/v1"

// Document is one resource in a file.
type Document struct {
	APIVersion string          `json:"apiVersion,omitempty"`
	Kind       string          `json:"kind"`
	Metadata   Metadata        `json:"metadata"`
	Spec       json.RawMessage `json:"spec,omitempty"`
	// Source says where the document was read, for messages.
	Source string `json:"-"`
}

// Metadata names a resource.
type Metadata struct {
	Name   string            `json:"name"`
	Tenant string            `json:"tenant,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Parse reads the documents of a file. Fields that the form does not have are errors. Empty documents are skipped.
func Parse(source string, data []byte) ([]Document, error) {
	var out []Document
	for i, part := range split(string(data)) {
		at := source
		if i > 0 {
			at = fmt.Sprintf("%s, document %d", source, i+1)
		}
		if isEmpty(part) {
			continue
		}
		doc := Document{Source: at}
		if err := yaml.UnmarshalStrict([]byte(part), &doc); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		doc.Source = at
		if err := doc.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		out = append(out, doc)
	}
	return out, nil
}

func (d Document) check() error {
	switch {
	case d.APIVersion != "" && d.APIVersion != APIVersion:
		return fmt.Errorf("apiVersion is %q, want %q: kubectl applies objects of Kubernetes", d.APIVersion, APIVersion)
	case d.Kind == "":
		return errors.New("kind is missing")
	case d.Metadata.Name == "":
		return errors.New("metadata.name is missing")
	}
	return nil
}

// split divides a file at its lines "---".
func split(text string) []string {
	var parts []string
	var part strings.Builder
	for line := range strings.Lines(text) {
		if strings.TrimRight(line, " \t\r\n") == "---" {
			parts = append(parts, part.String())
			part.Reset()
			continue
		}
		part.WriteString(line)
	}
	return append(parts, part.String())
}

// isEmpty reports whether a document has nothing but comments.
func isEmpty(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// Spec reads the spec of a document. A field that T does not have is an error.
func Spec[T any](d Document) (T, error) {
	var spec T
	if len(d.Spec) == 0 {
		return spec, nil
	}
	if err := yaml.UnmarshalStrict(d.Spec, &spec); err != nil {
		return spec, fmt.Errorf("%s: spec of %s/%s: %w", d.Source, strings.ToLower(d.Kind), d.Metadata.Name, err)
	}
	return spec, nil
}

// New makes a document of a resource.
func New(kind string, metadata Metadata, spec any) (Document, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return Document{}, fmt.Errorf("encoding %s %q: %w", kind, metadata.Name, err)
	}
	if string(text) == "{}" {
		text = nil
	}
	return Document{APIVersion: APIVersion, Kind: kind, Metadata: metadata, Spec: text}, nil
}

// Encode writes documents as one file.
func Encode(docs ...Document) ([]byte, error) {
	var out bytes.Buffer
	for i, d := range docs {
		if i > 0 {
			out.WriteString("---\n")
		}
		text, err := yaml.Marshal(d)
		if err != nil {
			return nil, fmt.Errorf("encoding %s %q: %w", d.Kind, d.Metadata.Name, err)
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}
