package sqlite

import (
	"sync"

	"github.com/kedge-dev/kedge/server/internal/store"
)

// locks are the names that are taken. The zero value is ready.
type locks struct {
	mu   sync.Mutex
	held map[string]bool
}

func (l *locks) take(name string) (store.Lock, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[name] {
		return nil, false
	}
	if l.held == nil {
		l.held = map[string]bool{}
	}
	l.held[name] = true
	return &lock{give: sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, name)
	})}, true
}

type lock struct{ give func() }

// Lost implements [store.Lock]: a channel that is never closed.
func (l *lock) Lost() <-chan struct{} { return nil }

// Release implements [store.Lock].
func (l *lock) Release() { l.give() }
