// Package places bounds what is done at once, fairly between those it is done for. It knows nothing of
// the work.
package places

import (
	"context"
	"slices"
	"sync"
)

// Places are what is done at once: an owner whose work hangs or takes long holds up nobody else
// (invariant 12).
//
//   - An owner that has no place gets one at once, as long as fewer than Most are taken.
//   - Beyond its first, an owner gets at most Share, and only while fewer than Usual are taken.
//   - Of those who wait, the owner that has the least comes first, then who has waited longest.
//
// Where PerHost is set the same is so for what one host is asked: at most PerHost at once, of which an
// owner beyond its first gets at most HostShare. Who waits for a host holds no place meanwhile, so that
// one that hangs holds up no other.
type Places struct {
	cfg Config

	mu    sync.Mutex
	taken int
	of    map[string]int // by owner
	at    map[string]int // by host
	seats map[seat]int
	queue []*waiter // by arrival
}

// seat is for whom a place is taken, and where the work is; the host is "" for work that is here.
type seat struct {
	owner string
	host  string
}

type waiter struct {
	seat
	ready chan struct{} // closed when it has its place
}

// Config says how many places there are; Share is at least one, and Most at least Usual.
type Config struct {
	Usual, Share, Most int
	PerHost, HostShare int // 0 for no bound
}

// New returns places that are all free.
func New(cfg Config) *Places {
	cfg.Share, cfg.Most = max(1, cfg.Share), max(cfg.Usual, cfg.Most)
	return &Places{cfg: cfg, of: map[string]int{}, at: map[string]int{}, seats: map[seat]int{}}
}

// Take waits for a place and returns how to give it back. An error is that of ctx.
func (p *Places) Take(ctx context.Context, owner string) (release func(), err error) {
	return p.TakeAt(ctx, owner, "")
}

// TakeAt is Take for work at a host; "" is for work that is here.
func (p *Places) TakeAt(ctx context.Context, owner, host string) (release func(), err error) {
	s := seat{owner, host}
	p.mu.Lock()
	if p.freeLocked(s) {
		p.grantLocked(s)
		p.mu.Unlock()
		return func() { p.release(s) }, nil
	}
	w := &waiter{seat: s, ready: make(chan struct{})}
	p.queue = append(p.queue, w)
	p.mu.Unlock()
	select {
	case <-w.ready:
		return func() { p.release(s) }, nil
	case <-ctx.Done():
		p.leave(w)
		return nil, ctx.Err()
	}
}

// freeLocked reports whether the rules give a seat a place now.
func (p *Places) freeLocked(s seat) bool {
	has := p.of[s.owner]
	if !(has == 0 && p.taken < p.cfg.Most) && !(has < p.cfg.Share && p.taken < p.cfg.Usual) {
		return false
	}
	if s.host == "" || p.cfg.PerHost == 0 {
		return true
	}
	return p.at[s.host] < p.cfg.PerHost && (p.seats[s] == 0 || p.seats[s] < p.cfg.HostShare)
}

func (p *Places) grantLocked(s seat) {
	p.taken++
	p.of[s.owner]++
	p.at[s.host]++
	p.seats[s]++
}

func (p *Places) release(s seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveBackLocked(s)
}

func (p *Places) giveBackLocked(s seat) {
	p.taken--
	less(p.of, s.owner)
	less(p.at, s.host)
	less(p.seats, s)
	p.serveLocked()
}

func less[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// serveLocked gives free places to those who wait.
func (p *Places) serveLocked() {
	for {
		best := -1
		for i, w := range p.queue {
			if p.freeLocked(w.seat) && (best < 0 || p.of[w.owner] < p.of[p.queue[best].owner]) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		w := p.queue[best]
		p.queue = slices.Delete(p.queue, best, best+1)
		p.grantLocked(w.seat)
		close(w.ready)
	}
}

// leave takes back a wait; a place that came at the same moment goes to the next.
func (p *Places) leave(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.queue, w); i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
		return
	}
	p.giveBackLocked(w.seat)
}
