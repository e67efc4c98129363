package plain

import (
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Error is a user's mistake in what was asked to be rendered or in how the tree looks. Mistakes
// inside a file are those of package manifest.
type Error struct {
	Path    string // file, folder or glob; "" when the whole request is meant
	Problem string // what is wrong and what would be right

	// Reason identifies the mistake; "" is ReasonRenderFailed.
	Reason fleet.Reason
	// Transient says that the same input may do another time: it was too slow, or had too little memory.
	Transient bool
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Problem
	}
	return e.Path + ": " + e.Problem
}

func problem(path, format string, args ...any) error {
	return &Error{Path: path, Problem: fmt.Sprintf(format, args...)}
}
