package fleet

import "fmt"

// ConflictError means that the current state does not allow a request. Its message contains the remedy. Nothing
// was changed.
type ConflictError struct{ Reason string }

func (e *ConflictError) Error() string { return e.Reason }

// Conflict returns a ConflictError.
func Conflict(format string, args ...any) error {
	return &ConflictError{Reason: fmt.Sprintf(format, args...)}
}
