package child

import (
	"context"
	"slices"
	"sync"
)

// admission limits the number of concurrent builds, in total and for each owner. Waiting builds are admitted in
// the order of arrival, skipping owners at their limit: builds of one owner that hang do not block others.
type admission struct {
	total, each int

	mu      sync.Mutex
	running int
	owners  map[string]int
	waiting []*waiter
}

type waiter struct {
	owner    string
	admitted chan struct{}
}

func newAdmission(total, each int) *admission {
	return &admission{total: total, each: each, owners: map[string]int{}}
}

// enter waits until owner may build. Call leave unless enter fails.
func (a *admission) enter(ctx context.Context, owner string) error {
	w := &waiter{owner: owner, admitted: make(chan struct{})}
	a.mu.Lock()
	a.waiting = append(a.waiting, w)
	a.admitLocked()
	a.mu.Unlock()
	select {
	case <-w.admitted:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.waiting, w); i >= 0 {
		a.waiting = slices.Delete(a.waiting, i, i+1)
		return context.Cause(ctx)
	}
	return nil // admitted at the same time; the build notices the end of ctx
}

// leave admits the next build.
func (a *admission) leave(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running--
	if a.owners[owner]--; a.owners[owner] == 0 {
		delete(a.owners, owner)
	}
	a.admitLocked()
}

func (a *admission) admitLocked() {
	a.waiting = slices.DeleteFunc(a.waiting, func(w *waiter) bool {
		if a.running >= a.total || a.owners[w.owner] >= a.each {
			return false
		}
		a.running++
		a.owners[w.owner]++
		close(w.admitted)
		return true
	})
}
