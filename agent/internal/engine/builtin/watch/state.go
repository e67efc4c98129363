package watch

// Reason is why a stream is in its state.
type Reason string

const (
	// Pending: the stream has not reported its objects yet.
	Pending Reason = ""
	// Synced: the stream works.
	Synced Reason = "Synced"
	// Failing: the stream does not work at the moment.
	Failing Reason = "Failing"
	// Forbidden: the agent may not watch the kind, or the kind cannot be watched.
	Forbidden Reason = "Forbidden"
	// Stale: the stream has failed for long, so that its last reports may be outdated.
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
