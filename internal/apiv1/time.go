package apiv1

import "time"

// Stamp formats a time for a response: in UTC, with the precision of the databases, so that a later read
// returns the same value. The zero time stays zero.
func Stamp(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}
