package sqlite

import (
	"context"
	"sync"

	"github.com/kedge-dev/kedge/server/internal/store"
)

// locks are the locked names. The zero value is ready.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the lock is released
}

func (l *locks) take(name string) (store.Lock, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[name] != nil {
		return nil, false
	}
	if l.held == nil {
		l.held = map[string]chan struct{}{}
	}
	free := make(chan struct{})
	l.held[name] = free
	return &lock{give: sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, name)
		close(free)
	})}, true
}

// await returns when name is not locked, or ctx ends.
func (l *locks) await(ctx context.Context, name string) error {
	l.mu.Lock()
	held := l.held[name]
	l.mu.Unlock()
	if held == nil {
		return nil
	}
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type lock struct{ give func() }

// Lost implements [store.Lock]: a channel that is never closed.
func (l *lock) Lost() <-chan struct{} { return nil }

// Release implements [store.Lock].
func (l *lock) Release() { l.give() }
