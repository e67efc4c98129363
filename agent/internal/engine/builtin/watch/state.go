package watch

// Reason is why a stream is in its state.
type Reason string

const (
	// Pending means: the stream has not reported its objects yet.
	Pending Reason = ""
	// Synced means: the stream works.
	Synced Reason = "Synced"
	// Failing means: the stream does not work at the moment.
	Failing Reason = "Failing"
	// Forbidden means: the agent may not watch the kind, or the kind cannot be watched.
	Forbidden Reason = "Forbidden"
	// Stale means: the stream has failed for long, so that its last reports may be outdated.
	Stale Reason = "Stale"
)

// State is the state of the stream that watches an object. The zero value is Pending.
type State struct {
	Reason  Reason
	Message string // only of Forbidden and Stale
}

// Failed reports whether the stream does not work.
func (s State) Failed() bool {
	return s.Reason == Failing || s.Reason == Forbidden || s.Reason == Stale
}
