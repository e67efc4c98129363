package fleet

import "fmt"

// InvalidError is a mistake in the request of a user. Nothing was changed.
type InvalidError struct {
	Field   string // name of the field in the API, such as "source.path"
	Problem string // the mistake and its remedy
}

func (e *InvalidError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Problem) }

// Invalid returns an InvalidError.
func Invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// Problems returns all InvalidErrors in err, in order: an error may join several. Other errors are not
// included.
func Problems(err error) []*InvalidError {
	switch e := err.(type) { //nolint:errorlint // the tree is walked, not searched
	case nil:
		return nil
	case *InvalidError:
		return []*InvalidError{e}
	case interface{ Unwrap() []error }:
		var out []*InvalidError
		for _, each := range e.Unwrap() {
			out = append(out, Problems(each)...)
		}
		return out
	case interface{ Unwrap() error }:
		return Problems(e.Unwrap())
	default:
		return nil
	}
}
