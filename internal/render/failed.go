package render

import (
	"errors"

	"github.com/kedge-dev/kedge/internal/filetree"
)

// Failed is a user error of a build, with the read set up to the failure. [Key] of Reads tells whether the same
// build would fail in the same way for another tree; the limits of a [Builder] are not part of it. Err is the
// error, which errors.As finds.
type Failed struct {
	Err   error
	Reads []string // see Result; never empty
}

func (e *Failed) Error() string { return e.Err.Error() }

func (e *Failed) Unwrap() error { return e.Err }

// Fail returns err as a [Failed] if it is a user error that the read set explains. It returns err unchanged if
// nothing was read, if it is a fault, or if the tree itself cannot be read: that may depend on settings of the
// repository.
func Fail(err error, reads []string) error {
	var tree *filetree.Error
	if len(reads) == 0 || !IsUserError(err) || errors.As(err, &tree) {
		return err
	}
	return &Failed{Err: err, Reads: reads}
}
