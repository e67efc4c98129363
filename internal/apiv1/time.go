package apiv1

import "time"

// Stamp is how every answer writes a time: in UTC, as precisely as databases keep it, so that what was
// just made reads the same when it is asked for later. The zero time stays zero.
func Stamp(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}
