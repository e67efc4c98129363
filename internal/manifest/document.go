package manifest

import (
	"bytes"
	"unicode/utf8"
)

// document is one part of a multi-document file.
type document struct {
	line       int // number of its first line in the file, from 1
	text       []byte
	directives int // number of lines before its content that start with %
}

// splitDocuments splits a YAML stream at its document markers and skips parts that contain only comments,
// directives, and blank lines. YAML forbids a line that starts with a marker inside any scalar, so checking the
// start of each line is exact if this function knows every line break that the YAML parser knows. Otherwise,
// text after a missed marker would be dropped silently. It stops after one document more than a file may have.
func splitDocuments(data []byte) []document {
	var docs []document
	start, startLine, blank, directives := 0, 1, true, 0
	flush := func(end int) {
		if !blank {
			docs = append(docs, document{line: startLine, text: data[start:end], directives: directives})
		}
		blank, directives = true, 0
	}
	for pos, line := 0, 1; pos < len(data) && len(docs) <= maxDocuments; line++ {
		end := lineEnd(data, pos)
		text := data[pos:end]
		switch {
		case isMarker(text, "---"):
			flush(pos)
			// What follows the marker on its line belongs to the new document.
			start, startLine = pos+3, line
			blank = isBlank(data[start:end])
		case isMarker(text, "..."):
			flush(pos)
			start, startLine = end, line+1
		case blank && !isBlank(text):
			blank = false
		case blank && text[0] == '%':
			directives++
		}
		pos = end
	}
	flush(len(data))
	return docs
}

// lineEnd returns the index after the line break that ends the line at pos. YAML 1.1 breaks lines
// at CR, LF, CR LF, NEL, LS and PS.
func lineEnd(data []byte, pos int) int {
	for i := pos; i < len(data); {
		switch c := data[i]; {
		case c == '\n':
			return i + 1
		case c == '\r':
			if i+1 < len(data) && data[i+1] == '\n' {
				return i + 2
			}
			return i + 1
		case c < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRune(data[i:])
			i += size
			if r == '\u0085' || r == '\u2028' || r == '\u2029' {
				return i
			}
		}
	}
	return len(data)
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	if !ok {
		return false
	}
	if len(rest) == 0 {
		return true
	}
	switch r, _ := utf8.DecodeRune(rest); r {
	case ' ', '\t', '\r', '\n', '\u0085', '\u2028', '\u2029':
		return true
	}
	return false
}

// isBlank reports whether a line before the content of a document has no content.
func isBlank(line []byte) bool {
	trimmed := bytes.TrimLeft(line, " \t\r\n\u0085\u2028\u2029")
	return len(trimmed) == 0 || trimmed[0] == '#' || line[0] == '%'
}
