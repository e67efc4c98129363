package output

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// None is what a cell without a value shows.
const None = "-"

// Age is the time since t as kubectl prints it, such as 5m or 3d4h. A zero time has none.
func Age(t, now time.Time) string {
	if t.IsZero() {
		return None
	}
	return Duration(now.Sub(t))
}

// Duration is d as kubectl prints it. A clock that is ahead makes no negative age.
func Duration(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }

// Until is the time from now to t, in either direction. A zero time is never.
func Until(t, now time.Time) string {
	switch {
	case t.IsZero():
		return "never"
	case t.After(now):
		return "in " + Duration(t.Sub(now))
	default:
		return Duration(now.Sub(t)) + " ago"
	}
}

// Timestamp is a point in time as kubectl describe prints it. A zero time has none.
func Timestamp(t time.Time) string {
	if t.IsZero() {
		return None
	}
	return t.UTC().Format(time.RFC1123Z)
}
