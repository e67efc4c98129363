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

// file is a YAML or JSON file with the positions of its nodes, and the pending edits.
type file struct {
	path  string
	data  []byte
	docs  []*yaml.Node
	lines []int  // start of each line
	eol   string // line ending of most lines

	splices []splice
	set     map[*yaml.Node]string // scalars that are already set
	spans   map[*yaml.Node]splice // their positions
	last    position              // last result of at
	*steps
}

var bom = []byte("\xef\xbb\xbf")

// open parses a file.
func open(path string, data []byte) (*file, error) {
	if !utf8.Valid(data) {
		return nil, problem(path, "the file is not UTF-8")
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

var errParser = errors.New("the parser failed")

// parse returns the documents of a text. Aliases are not expanded, so that none can multiply.
func parse(data []byte) (docs []*yaml.Node, err error) {
	defer func() {
		if recover() != nil { // a panic of the library: the input comes from a user
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

// lineStarts finds lines as YAML counts them. A byte order mark is not part of the first line.
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

// breakAt returns the length of the line break at a position, or 0.
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

// position is a position in a file: line and column, counted from 1 as in nodes, and in bytes.
type position struct{ line, column, at int }

// at returns the start of a node, including its anchor or tag, or -1.
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

// skipBlank skips white space, line breaks, and comments.
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

// endOfLine returns the end of the line at a position, before its line break.
func (f *file) endOfLine(at int) int {
	for at < len(f.data) && breakAt(f.data, at) == 0 {
		at++
	}
	return at
}

// beginOfLine returns the start of the line at a position.
func (f *file) beginOfLine(at int) int {
	i, found := slices.BinarySearch(f.lines, at)
	switch {
	case found:
		return f.lines[i]
	case i == 0: // the byte order mark
		return 0
	}
	return f.lines[i-1]
}
