package helm

import (
	"path"
	"regexp"
	"strings"

	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// located finds the position in a template in an error of the engine: "(chart/templates/x.yaml:3:5)", or the
// same without parentheses at the start.
var located = regexp.MustCompile(`^(?:[^(]*\()?([^\s():]+/[^():\n]*?):(\d+)(?::\d+)?\)?:?\s*`)

// templateError adapts errors of Helm's engine, which are texts: it puts the file and the line first, and the
// rest on one line.
func (b *builder) templateError(err error) error {
	text := strings.TrimPrefix(err.Error(), "template: ")
	match := located.FindStringSubmatch(text)
	if match == nil {
		return b.problem("templates", "%s", oneLine(text))
	}
	return &treefs.Error{Path: b.sourceOf(match[1]), Problem: "line " + match[2] + ": " + oneLine(text[len(match[0]):])}
}

// sourceOf converts Helm's name of a file, which starts with the name of the chart, to a path in the tree.
func (b *builder) sourceOf(name string) string {
	_, below, ok := strings.Cut(name, "/")
	if !ok {
		below = name
	}
	return path.Join(b.folder, below)
}

// Limits of one error: templates that include each other cause long errors, of which the start and the end are
// useful.
const (
	maxBeginning = 400
	maxEnd       = 600
)

// oneLine converts a text to one line for terminals and statuses.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxBeginning+maxEnd {
		return text
	}
	return strings.ToValidUTF8(text[:maxBeginning], "") + " … " + strings.ToValidUTF8(text[len(text)-maxEnd:], "")
}
