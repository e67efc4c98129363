// Package wake signals a goroutine that it has work. A signal carries no data: the goroutine finds the work in a state
// that it shares with the sender.
package wake

// Signal wakes one goroutine that receives from it. Make it with New.
type Signal chan struct{}

// New returns a signal that is not set.
func New() Signal { return make(Signal, 1) }

// Set wakes the receiver now, or when it receives next. It never blocks. Signals that are set before the receiver
// receives are one. Set is safe for concurrent use.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}
