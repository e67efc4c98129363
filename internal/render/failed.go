package render

import (
	"errors"

	"github.com/kedge-dev/kedge/internal/filetree"
)

// Failed is a user's mistake that a build came to, with what was read until then. [Key] of Reads tells of
// another tree whether the same build would come to the same; the limits of a [Builder] are not part of it.
// What is wrong is Err, which errors.As finds.
type Failed struct {
	Err   error
	Reads []string // see Result; never empty
}

func (e *Failed) Error() string { return e.Err.Error() }

func (e *Failed) Unwrap() error { return e.Err }

// Fail returns err as a [Failed] when it is a user's mistake that what was read explains. It is left as it
// is when nothing was read, when it is a fault, and when the tree itself cannot be read as it is: that may
// be due to what is said of a repository elsewhere.
func Fail(err error, reads []string) error {
	var tree *filetree.Error
	if len(reads) == 0 || !IsUserError(err) || errors.As(err, &tree) {
		return err
	}
	return &Failed{Err: err, Reads: reads}
}
