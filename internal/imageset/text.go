package imageset

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// file is a YAML or JSON file with the places of its nodes, and what shall be changed in it.
type file struct {
	path  string
	data  []byte
	docs  []*yaml.Node
	lines []int  // where each line begins
	eol   string // as most lines end

	splices []splice
	set     map[*yaml.Node]string // scalars that were set already
	spans   map[*yaml.Node]splice // where those were
	last    position              // that at was asked for
	*steps
}

var bom = []byte("\xef\xbb\xbf")

// open parses a file.
func open(path string, data []byte) (*file, error) {
	if !utf8.Valid(data) {
		return nil, problem(path, "it is not UTF-8, so it cannot be changed here")
	}
	docs, err := parse(data)
	if err != nil {
		return nil, problem(path, "%v", err)
	}
	return &file{
		path: path, data: data, docs: docs, lines: lineStarts(data), eol: lineEnd(data),
		set: map[*yaml.Node]string{}, spans: map[*yaml.Node]splice{},
		steps: &steps{left: minSteps + stepsPerByte*len(data)},
	}, nil
}

var errParser = errors.New("the parser gave up on it")

// parse returns the documents of a text. Aliases are not expanded, so that none can multiply.
func parse(data []byte) (docs []*yaml.Node, err error) {
	defer func() {
		if recover() != nil { // the library's own; what it trips over is a user's
			docs, err = nil, errParser
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("not valid YAML: %w", err)
		}
		docs = append(docs, &doc)
	}
}

// lineStarts finds lines as YAML counts them. A mark of byte order is no part of the first.
func lineStarts(data []byte) []int {
	at := 0
	if bytes.HasPrefix(data, bom) {
		at = len(bom)
	}
	starts := []int{at}
	for at < len(data) {
		n := breakAt(data, at)
		if n == 0 {
			at++
			continue
		}
		at += n
		starts = append(starts, at)
	}
	return starts
}

// breakAt is how long the line break at a place is; 0 when there is none.
func breakAt(data []byte, at int) int {
	rest := data[at:]
	switch {
	case bytes.HasPrefix(rest, []byte("\r\n")):
		return 2
	case rest[0] == '\n' || rest[0] == '\r':
		return 1
	case bytes.HasPrefix(rest, []byte("\u0085")):
		return 2
	case bytes.HasPrefix(rest, []byte("\u2028")), bytes.HasPrefix(rest, []byte("\u2029")):
		return 3
	}
	return 0
}

func lineEnd(data []byte) string {
	if crlf := bytes.Count(data, []byte("\r\n")); crlf > 0 && crlf*2 > bytes.Count(data, []byte("\n")) {
		return "\r\n"
	}
	return "\n"
}

// position is a place in a file, counted from 1 as nodes have it, and in bytes.
type position struct{ line, column, at int }

// at is where a node begins, or -1: its anchor or tag, if it has one.
func (f *file) at(n *yaml.Node) int {
	if n.Line < 1 || n.Line > len(f.lines) {
		return -1
	}
	from := position{n.Line, 1, f.lines[n.Line-1]}
	if f.last.line == n.Line && f.last.column <= n.Column { // JSON is often one line
		from = f.last
	}
	if !f.spend((n.Column - from.column) / bytesPerStep) {
		return -1
	}
	at := from.at
	for range n.Column - from.column {
		if at >= len(f.data) {
			return -1
		}
		_, width := utf8.DecodeRune(f.data[at:])
		at += width
	}
	f.last = position{n.Line, n.Column, at}
	return at
}

// skipBlank skips white space, line breaks and comments.
func (f *file) skipBlank(at int) int {
	for at < len(f.data) {
		switch f.data[at] {
		case ' ', '\t', '\n', '\r':
			at++
		case '#':
			at = f.endOfLine(at)
		default:
			return at
		}
	}
	return at
}

// endOfLine is where the line of a place ends, before its break.
func (f *file) endOfLine(at int) int {
	for at < len(f.data) && breakAt(f.data, at) == 0 {
		at++
	}
	return at
}

// beginOfLine is where the line of a place begins.
func (f *file) beginOfLine(at int) int {
	i, found := slices.BinarySearch(f.lines, at)
	switch {
	case found:
		return f.lines[i]
	case i == 0: // the mark of byte order
		return 0
	}
	return f.lines[i-1]
}
