package fleet

import "fmt"

// InvalidError is a user's mistake in what they asked for. Nothing was changed.
type InvalidError struct {
	Field   string // name of the field in the API, such as "source.path"
	Problem string // what is wrong with it and what would be right
}

func (e *InvalidError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Problem) }

// Invalid makes an InvalidError.
func Invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// Problems are all that is wrong by err, in its order: an error may join several. An error that is not the
// user's mistake is not among them.
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
