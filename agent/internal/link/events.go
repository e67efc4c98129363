package link

import (
	"sync"

	"github.com/kedge-dev/kedge/internal/wire"
)

// maxEvents bounds what waits for the server. Events are news, not state: the oldest are the least
// interesting.
const maxEvents = 1024

type events struct {
	mu      sync.Mutex
	waiting []wire.Event
}

// put reports whether an older event had to go.
func (e *events) put(event wire.Event) (dropped bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) >= maxEvents {
		e.waiting = e.waiting[1:]
		dropped = true
	}
	e.waiting = append(e.waiting, event)
	return dropped
}

func (e *events) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = nil
}

// take removes what fits into one frame.
func (e *events) take() []wire.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(len(e.waiting), wire.MaxEvents)
	batch := e.waiting[:n:n]
	if e.waiting = e.waiting[n:]; len(e.waiting) == 0 {
		e.waiting = nil
	}
	return batch
}
