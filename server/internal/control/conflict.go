package control

import (
	"errors"
	"fmt"
)

// ErrStale says that something was changed since the caller read it. Nothing was changed.
var ErrStale = errors.New("it was changed meanwhile: read it again and decide anew")

// ConflictError says that the state of something refuses what was asked for, and what would help.
// Nothing was changed.
type ConflictError struct{ Reason string }

func (e *ConflictError) Error() string { return e.Reason }

func conflict(format string, args ...any) error {
	return &ConflictError{Reason: fmt.Sprintf(format, args...)}
}

// stale returns ErrStale unless match is what the caller saw, or 0, which means whatever.
func stale(match, spec int64) error {
	if match != 0 && match != spec {
		return ErrStale
	}
	return nil
}
