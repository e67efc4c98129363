package fleet

import "fmt"

// ConflictError says that the state of something refuses what was asked for, and what would help.
// Nothing was changed.
type ConflictError struct{ Reason string }

func (e *ConflictError) Error() string { return e.Reason }

// Conflict returns a ConflictError.
func Conflict(format string, args ...any) error {
	return &ConflictError{Reason: fmt.Sprintf(format, args...)}
}
