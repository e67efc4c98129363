package sqlstore

import (
	"context"
	"sync"

	"github.com/kedge-dev/kedge/internal/wait"
)

// Hub notifies subscribers of commits. Several notifications before a receive count as one. The zero value is
// ready; it is safe for concurrent use.
type Hub struct {
	mu   sync.Mutex
	subs map[wait.Signal]struct{}
}

// Subscribe returns a new channel, which gets values until ctx ends and is never closed.
func (h *Hub) Subscribe(ctx context.Context) <-chan struct{} {
	ch := wait.NewSignal()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = map[wait.Signal]struct{}{}
	}
	h.subs[ch] = struct{}{}
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subs, ch)
	})
	return ch
}

// Broadcast notifies all subscribers without waiting.
func (h *Hub) Broadcast() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.subs {
		ch.Set()
	}
}
