// Package agentconfig parses the files in Git that declare the deployments of one agent, in Kedge's and in
// GitLab's format. It is pure: it turns text into declarations, or into a list of all errors, each with field
// and line. It does not read Git, does not know tenants, and makes no decisions.
//
// Both formats are strict. An unknown key, a wrong type, or a value outside its enumeration makes the whole
// file invalid: ignoring a mistyped "prune" would do the opposite of what its author wrote.
package agentconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

const (
	// MaxSize is the maximum size of a file in bytes.
	MaxSize = 128 << 10
	// maxProblems limits the findings that are listed for one file.
	maxProblems = 20
	// maxDeployments limits the deployments of one file: each needs a render, and all are written in one
	// transaction.
	maxDeployments = 500
	// maxNodes limits the number of nodes after the expansion of aliases.
	maxNodes = 100_000
	// textPerNode is the number of bytes of repeated text that count as one more node.
	textPerNode = 32
)

// File is the content of a configuration file.
type File struct {
	Deployments []Deployment // in the order of the file
	// Lists is true if the file has a list of deployments, even an empty one. Only then are deployments that
	// are not listed removed.
	Lists bool
	// Kinds is the kind filter of the agent; nil if the file has none.
	Kinds *fleet.KindFilter
	// Notices name the parts of the file that have no effect.
	Notices []fleet.ConfigFinding
}

// Deployment is a deployment that a file declares for its agent.
type Deployment struct {
	// Name is unique in the file. It is an RFC 1123 label, or several joined by dots.
	Name   string
	Labels map[string]string
	// Project is the name of the repository in GitLab, a path or a number; "" means that Source has the URL.
	Project string
	// Source has no RepoURL if Project is set, or if the repository is the one of the file itself.
	Source    fleet.Source
	Namespace string
	Policy    fleet.Policy
	// Prune deletes the objects when the file no longer declares the deployment.
	Prune bool

	at where
}

// where locates the fields of a deployment in the file.
type where struct {
	field string            // such as "deployments[2]"
	names map[string]string // file names of fields of fleet.Deployment, where they differ
	lines map[string]int    // by path of the field
}

// Finding returns a finding about a field of the deployment. The field is named as in the API; the finding uses
// the name in the file.
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

// line returns the line of a field, or of the closest parent that the file contains.
func (w where) line(field string) int {
	for field != "" {
		if line, ok := w.lines[field]; ok {
			return line
		}
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return 0
}

// Error lists the errors of a file, up to maxProblems. A file with errors must not be used.
type Error struct {
	Findings []fleet.ConfigFinding // in the order of the file
	More     int                   // number of findings that are not listed
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

// Refuse returns an Error with the given findings, sorted by their position in the file. At least one is
// required.
func Refuse(findings []fleet.ConfigFinding) *Error {
	slices.SortStableFunc(findings, func(a, b fleet.ConfigFinding) int { return a.Line - b.Line })
	e := &Error{Findings: findings}
	if more := len(findings) - maxProblems; more > 0 {
		e.Findings, e.More = findings[:maxProblems:maxProblems], more
	}
	return e
}
