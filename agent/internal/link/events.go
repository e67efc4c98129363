package link

import (
	"sync"

	"github.com/kedge-dev/kedge/internal/wire"
)

// maxEvents bounds the queued events. When the queue is full, the oldest event is dropped.
const maxEvents = 1024

// events is the queue of events for the server.
type events struct {
	mu     sync.Mutex
	queued []wire.Event
}

// put adds an event. It reports whether it dropped an older one.
func (e *events) put(event wire.Event) (dropped bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queued) >= maxEvents {
		e.queued = e.queued[1:]
		dropped = true
	}
	e.queued = append(e.queued, event)
	return dropped
}

func (e *events) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queued = nil
}

// next removes and returns as many events as fit into one frame.
func (e *events) next() []wire.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(len(e.queued), wire.MaxEvents)
	batch := e.queued[:n:n]
	if e.queued = e.queued[n:]; len(e.queued) == 0 {
		e.queued = nil
	}
	return batch
}
