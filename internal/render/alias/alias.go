// Package alias finds YAML whose aliases expand to far more than is written, before a library expands them: 367
// bytes can need gigabytes. It uses the parser of Kustomize and expands nothing itself.
package alias

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// maxAdded limits the size that aliases may add to a text. Kustomize needs about 250 times as much memory.
const maxAdded = 1 << 20

// nodeCost is the size of a node in addition to its text.
const nodeCost = 8

// maxInner limits the depth of YAML inside strings of YAML, such as a patch in a transformer in a
// kustomization.
const maxInner = 4

// ErrExpands means that aliases multiply.
var ErrExpands = errors.New("its aliases expand to too much: write the values out")

// Check fails with ErrExpands if a document in text, or a string in it that is YAML itself, expands too much.
// Invalid YAML passes: the renderer reports it.
func Check(text []byte) error { return check(text, maxInner) }

func check(text []byte, inner int) error {
	// A quoted text may use escapes.
	if !bytes.ContainsAny(text, `&\`) || !bytes.ContainsAny(text, `*\`) {
		return nil
	}
	// Kustomize splits documents before it parses them, and Helm parses the whole text: check both.
	whole := strings.ReplaceAll(string(text), "\r\n", "\n")
	for _, part := range append(strings.Split(whole, "\n---"), whole) {
		if err := checkStream(part, inner); err != nil {
			return err
		}
	}
	return nil
}

// checkStream checks the documents of a text until one is not YAML.
func checkStream(text string, inner int) error {
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var doc yaml.Node
		if err := decoder.Decode(&doc); err != nil {
			return nil //nolint:nilerr // the end, or not YAML: see Check
		}
		w := weigher{expanded: map[*yaml.Node]int{}, inner: inner}
		total, err := w.weigh(&doc)
		if err != nil {
			return err
		}
		if total-w.written > maxAdded {
			return ErrExpands
		}
	}
}

// weigher computes the size of a document with aliases expanded. It visits each node once.
type weigher struct {
	expanded map[*yaml.Node]int // -1 while a node is being visited
	written  int
	inner    int
}

func (w *weigher) weigh(n *yaml.Node) (int, error) {
	if n.Kind == yaml.AliasNode {
		w.written += nodeCost
		return w.weighOnce(n.Alias)
	}
	return w.weighOnce(n)
}

func (w *weigher) weighOnce(n *yaml.Node) (int, error) {
	if total, ok := w.expanded[n]; ok {
		if total < 0 {
			return 0, fmt.Errorf("line %d: an alias refers to a node that contains it: %w", n.Line, ErrExpands)
		}
		return total, nil
	}
	w.expanded[n] = -1
	total := nodeCost + len(n.Value)
	w.written += total
	if n.Kind == yaml.ScalarNode && w.inner > 0 {
		if err := check([]byte(n.Value), w.inner-1); err != nil {
			return 0, fmt.Errorf("in the text of line %d: %w", n.Line, err)
		}
	}
	for _, child := range n.Content {
		weight, err := w.weigh(child)
		if err != nil {
			return 0, err
		}
		if total += weight; total > maxAdded<<10 {
			return 0, ErrExpands // before the sum overflows
		}
	}
	w.expanded[n] = total
	return total, nil
}
