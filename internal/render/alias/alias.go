// Package alias finds YAML whose aliases expand to far more than was written, before a library expands
// them: 367 bytes can ask for gigabytes. It parses with the parser that Kustomize has and expands
// nothing itself.
package alias

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// maxAdded bounds what aliases may add to a text. Kustomize needs about 250 times as much memory.
const maxAdded = 1 << 20

// nodeCost is what a node weighs beside its text.
const nodeCost = 8

// maxInner bounds how deep YAML inside of strings inside of YAML is looked at, such as a patch in a
// transformer in a kustomization.
const maxInner = 4

// ErrExpands says that aliases multiply.
var ErrExpands = errors.New("its aliases expand to too much: write the values out")

// Check fails with ErrExpands when a document of text, or a string in one that is YAML itself, expands
// to too much. What is not YAML passes: it is for somebody else to complain of.
func Check(text []byte) error { return check(text, maxInner) }

func check(text []byte, inner int) error {
	// A text in quotes may spell what it has inside in another way.
	if !bytes.ContainsAny(text, `&\`) || !bytes.ContainsAny(text, `*\`) {
		return nil
	}
	// Kustomize parts documents before it parses them, Helm parses the whole: one that either sees must
	// not be missed.
	whole := strings.ReplaceAll(string(text), "\r\n", "\n")
	for _, part := range append(strings.Split(whole, "\n---"), whole) {
		if err := checkStream(part, inner); err != nil {
			return err
		}
	}
	return nil
}

// checkStream looks at the documents of a text until one is not YAML.
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

// weigher measures a document with aliases followed. A node that was weighed is not weighed again, so
// that the work is that of reading it.
type weigher struct {
	expanded map[*yaml.Node]int // -1 while a node is being weighed
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
			return 0, fmt.Errorf("line %d: an alias of what it is in itself: %w", n.Line, ErrExpands)
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
