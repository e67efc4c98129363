package helm

import (
	"path"
	"regexp"
	"strings"

	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// located finds where in a template an error of the engine is: "(chart/templates/x.yaml:3:5)", or the
// same without parentheses at its beginning.
var located = regexp.MustCompile(`^(?:[^(]*\()?([^\s():]+/[^():\n]*?):(\d+)(?::\d+)?\)?:?\s*`)

// templateError is the adapter for Helm's engine, whose errors are texts: it puts the file and the line
// first, and the rest on one line.
func (b *builder) templateError(err error) error {
	text := strings.TrimPrefix(err.Error(), "template: ")
	match := located.FindStringSubmatch(text)
	if match == nil {
		return b.problem("templates", "%s", oneLine(text))
	}
	return &treefs.Error{Path: b.sourceOf(match[1]), Problem: "line " + match[2] + ": " + oneLine(text[len(match[0]):])}
}

// sourceOf turns the name that Helm has for a file, which begins with the name of the chart, into a path
// in the tree.
func (b *builder) sourceOf(name string) string {
	_, below, ok := strings.Cut(name, "/")
	if !ok {
		below = name
	}
	return path.Join(b.folder, below)
}

// The most that is said of one mistake: templates that include each other make long stories, of which the
// beginning and the end tell.
const (
	maxBeginning = 400
	maxEnd       = 600
)

// oneLine makes a line of a text that a terminal and a status can show.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxBeginning+maxEnd {
		return text
	}
	return strings.ToValidUTF8(text[:maxBeginning], "") + " … " + strings.ToValidUTF8(text[len(text)-maxEnd:], "")
}
