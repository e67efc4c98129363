// Package fairlimit limits how much work runs at the same time, and shares the limit fairly between owners and
// hosts. It does not know the work.
package fairlimit

import (
	"context"
	"slices"
	"sync"
)

// Limiter limits concurrent work. An owner whose work hangs or is slow does not delay other owners (invariant 12).
//
//   - An owner without running work starts at once, while fewer than Most run in total.
//   - An owner with running work runs at most Share, and only while fewer than Usual run in total.
//   - When work ends, the waiting owner with the least running work starts next; among equals, the one that has
//     waited longest.
//
// With PerHost the same holds for each host: at most PerHost run at one host, of which an owner beyond its first
// runs at most HostShare. Work that waits for a host does not count against the other limits, so a host that hangs
// does not delay other hosts.
type Limiter struct {
	cfg Config

	mu      sync.Mutex
	running int
	byOwner map[string]int
	byHost  map[string]int
	byKey   map[key]int
	queue   []*waiter // in order of arrival
}

// key says for which owner work runs, and at which host; the host is "" for work on this machine.
type key struct {
	owner string
	host  string
}

type waiter struct {
	key
	ready chan struct{} // closed when the work may start
}

// Config holds the limits. Share is at least 1, and Most at least Usual.
type Config struct {
	Usual, Share, Most int
	PerHost, HostShare int // 0 means no limit
}

// New returns a limiter with nothing running.
func New(cfg Config) *Limiter {
	cfg.Share, cfg.Most = max(1, cfg.Share), max(cfg.Usual, cfg.Most)
	return &Limiter{cfg: cfg, byOwner: map[string]int{}, byHost: map[string]int{}, byKey: map[key]int{}}
}

// Acquire waits until work of the owner may start. The caller calls release when the work has ended. An error is
// that of ctx.
func (l *Limiter) Acquire(ctx context.Context, owner string) (release func(), err error) {
	return l.AcquireAt(ctx, owner, "")
}

// AcquireAt is Acquire for work at a host; "" is this machine.
func (l *Limiter) AcquireAt(ctx context.Context, owner, host string) (release func(), err error) {
	k := key{owner, host}
	l.mu.Lock()
	if l.allowsLocked(k) {
		l.startLocked(k)
		l.mu.Unlock()
		return func() { l.release(k) }, nil
	}
	w := &waiter{key: k, ready: make(chan struct{})}
	l.queue = append(l.queue, w)
	l.mu.Unlock()
	select {
	case <-w.ready:
		return func() { l.release(k) }, nil
	case <-ctx.Done():
		l.cancel(w)
		return nil, ctx.Err()
	}
}

// allowsLocked reports whether work may start now.
func (l *Limiter) allowsLocked(k key) bool {
	has := l.byOwner[k.owner]
	if !(has == 0 && l.running < l.cfg.Most) && !(has < l.cfg.Share && l.running < l.cfg.Usual) {
		return false
	}
	if k.host == "" || l.cfg.PerHost == 0 {
		return true
	}
	return l.byHost[k.host] < l.cfg.PerHost && (l.byKey[k] == 0 || l.byKey[k] < l.cfg.HostShare)
}

func (l *Limiter) startLocked(k key) {
	l.running++
	l.byOwner[k.owner]++
	l.byHost[k.host]++
	l.byKey[k]++
}

func (l *Limiter) release(k key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(k)
}

func (l *Limiter) endLocked(k key) {
	l.running--
	decrement(l.byOwner, k.owner)
	decrement(l.byHost, k.host)
	decrement(l.byKey, k)
	l.startWaitingLocked()
}

func decrement[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// startWaitingLocked starts waiting work for as long as the limits allow it.
func (l *Limiter) startWaitingLocked() {
	for {
		best := -1
		for i, w := range l.queue {
			if l.allowsLocked(w.key) && (best < 0 || l.byOwner[w.owner] < l.byOwner[l.queue[best].owner]) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		w := l.queue[best]
		l.queue = slices.Delete(l.queue, best, best+1)
		l.startLocked(w.key)
		close(w.ready)
	}
}

// cancel removes a waiter. If its work was started at the same moment, the next waiter starts instead.
func (l *Limiter) cancel(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.queue, w); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		return
	}
	l.endLocked(w.key)
}
