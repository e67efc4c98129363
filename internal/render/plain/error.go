package plain

import (
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Error is a user error in the request or in the structure of the tree. Errors inside a file are those of
// package manifest.
type Error struct {
	Path    string // file, folder, or glob; "" for the whole request
	Problem string // the mistake and its remedy

	// Reason identifies the error; "" is ReasonRenderFailed.
	Reason fleet.Reason
	// Transient means that the same input may succeed another time: it was too slow, or memory was short.
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
