// Package agentconfig reads the files in Git that declare what one agent deploys: Kedge's own and
// GitLab's. It is pure: text in, declarations out, or everything that is wrong with the text, each
// with the field and the line. It does not look into Git, knows no tenant, and decides nothing.
//
// Both files are small and strict. An unknown key, a wrong type or a word that is none of those
// allowed refuses the whole file: a mistyped "prune" that is ignored would do the opposite of what
// its author wrote.
package agentconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

const (
	// MaxSize is the size that a file may have, in bytes.
	MaxSize = 128 << 10
	// maxProblems bounds what is said about one file.
	maxProblems = 20
	// maxDeployments bounds what one file declares: each costs a render, and all are written at once.
	maxDeployments = 500
	// maxNodes bounds what aliases can make of a small file.
	maxNodes = 100_000
	// textPerNode is how many bytes of a repeated text count as one node more.
	textPerNode = 32
)

// File is what a configuration file declares.
type File struct {
	Deployments []Deployment // in the order of the file
	// Lists says that the file has a list of deployments, be it empty: what is not in it was left out on
	// purpose. A file that says nothing has none.
	Lists bool
	// Notices say what of the file has no effect.
	Notices []fleet.ConfigFinding
}

// Deployment is one that a file declares for its agent.
type Deployment struct {
	// Name is unique in the file. It is an RFC 1123 label, or several with dots between them.
	Name   string
	Labels map[string]string
	// Project is how GitLab names the repository, a path or a number; "" means that Source names it.
	Project string
	// Source has no RepoURL when Project is set, and when it is the repository of the file itself.
	Source    fleet.Source
	Namespace string
	Policy    fleet.Policy
	// Prune says that the objects are deleted when the file no longer declares the deployment.
	Prune bool

	at where
}

// where says which fields of a file a deployment was read from.
type where struct {
	field string            // such as "deployments[2]"
	names map[string]string // of the fields of a fleet.Deployment below it, where they differ
	lines map[string]int    // of every field of the file
}

// Finding is what is wrong with a field of the deployment, which is named as in the API, in the words
// of the file.
func (d Deployment) Finding(field, message string) fleet.ConfigFinding {
	if name, ok := d.at.names[field]; ok {
		field = name
	}
	full := d.at.field
	if field != "" {
		full += "." + field
	}
	return fleet.ConfigFinding{Field: full, Line: d.at.line(full), Message: message}
}

// line is that of a field, or of the nearest one around it that the file has.
func (w where) line(field string) int {
	for field != "" {
		if line, ok := w.lines[field]; ok {
			return line
		}
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return 0
}

// Error says everything that is wrong with a file, up to a bound. Nothing of it may be used.
type Error struct {
	Findings []fleet.ConfigFinding // in the order of the file
	More     int                   // how many there are beside
}

func (e *Error) Error() string {
	var lines []string
	for _, f := range e.Findings {
		lines = append(lines, f.String())
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.More))
	}
	return strings.Join(lines, "; ")
}

// Refuse makes an Error of findings, in the order of the file. There must be at least one.
func Refuse(findings []fleet.ConfigFinding) *Error {
	slices.SortStableFunc(findings, func(a, b fleet.ConfigFinding) int { return a.Line - b.Line })
	e := &Error{Findings: findings}
	if more := len(findings) - maxProblems; more > 0 {
		e.Findings, e.More = findings[:maxProblems:maxProblems], more
	}
	return e
}
