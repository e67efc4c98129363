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
