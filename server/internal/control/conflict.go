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

// Match is the state of a specification that a caller saw: of which thing, since a name may have been given
// anew meanwhile, and which. The zero value means whatever there is now.
type Match struct {
	ID   string
	Spec int64
}

// check returns ErrStale unless that is what there is.
func (m Match) check(id string, spec int64) error {
	if m != (Match{}) && m != (Match{ID: id, Spec: spec}) {
		return ErrStale
	}
	return nil
}
